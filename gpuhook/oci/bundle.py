"""The bundle's config.json, as far as the hook needs it (OCI runtime specification, "Configuration").

The engine writes the structure; the strings in it come from the image and are hostile. Unknown fields are
fine. What two readers could understand differently is refused: a key given twice, or in another case (Go
takes `Root` for `root`). A null counts as the empty value of its kind, as it does for runtimes.
"""

from __future__ import annotations

import posix

from gpuhook.errors import BadBundle
from gpuhook.jsontext import NotJson, document, is_plain
from gpuhook.kernel.files import WRITABLE_BY_OTHERS, read_file
from gpuhook.value import Value

LIMIT = 16 << 20  # bytes; a million variables fit
HINT = "config.json is written by the container engine; see the OCI runtime specification"
SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
MOUNT_KEYS = ("destination", "source", "type", "options")


class Mount(Value):
    """One entry of config.json's mounts."""

    destination: str
    source: str
    index: int


class Bundle(Value):
    """What the hook needs of a container's configuration.

    path: of the bundle; env: the last value of each variable; mounts: in the order of the file; root_path: as
    given, relative to the bundle; privileged: CAP_SYS_ADMIN is in the bounding set; ignored: entries of the
    environment that are no NAME=value; device_rules: linux.resources.devices as it stands in the file.
    """

    path: str
    env: dict[str, str]
    mounts: tuple[Mount, ...]
    root_path: str
    privileged: bool = False
    ignored: tuple[str, ...] = ()
    device_rules: tuple[object, ...] = ()

    def allows_device(self, major: int, minor: int) -> bool:
        """Whether config.json's device rules let the container read and write this character device.

        The last rule that matches decides ("Allowed Device list" of the specification); without rules nothing is
        allowed. Rules that are no objects are passed over: they are the runtime's to refuse.
        """
        allowed = False
        for rule in self.device_rules:
            if isinstance(rule, dict) and _matches(rule, major, minor):
                allowed = rule.get("allow") is True
        return allowed

    def rootfs(self) -> str:
        """The absolute, lexically clean path of the root filesystem, as runc resolves it.

        Raises BadBundle where there is none or it is the host's root.
        """
        where = f"{self.path}/config.json: root.path"
        if not is_plain(self.root_path):
            raise BadBundle(f"the root filesystem is {self.root_path!r}, no plain path", where=where, hint=HINT)
        path = clean(self.root_path if self.root_path.startswith("/") else f"{self.path}/{self.root_path}")
        if not self.root_path or path == "/":
            problem = "is empty" if not self.root_path else f"{self.root_path!r} is the host's root"
            raise BadBundle(f"the root filesystem {problem}", where=where, hint=HINT)
        return path


def _matches(rule: dict[str, object], major: int, minor: int) -> bool:
    access = rule.get("access") or "rwm"
    touches = "r" in str(access) and "w" in str(access) if rule.get("allow") is True else set(str(access)) & {"r", "w"}
    return (
        rule.get("type") in (None, "", "a", "c")
        and rule.get("major") in (None, -1, major)
        and rule.get("minor") in (None, -1, minor)
        and bool(touches)
    )


def clean(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes; `..` at the root stays there."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def read_bundle(path: str) -> Bundle:
    """The configuration in the bundle at this absolute path. Raises BadBundle."""
    where = f"{path}/config.json"
    try:
        folder = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
        try:
            data, status = read_file("config.json", LIMIT, dir_fd=folder)
        finally:
            posix.close(folder)
    except OSError as error:
        raise BadBundle(f"cannot read config.json: {error.strerror}", where=where, hint=HINT) from error
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise BadBundle(
            f"others can write config.json (mode {status.st_mode & 0o7777:04o})",
            where=where,
            hint=f"chmod go-w {where}",
        )
    try:
        return parse_bundle(path, document(data))
    except NotJson as error:
        raise BadBundle(f"config.json is not JSON: {error}", where=where, hint=HINT) from error


class _Reader:
    """Takes fields out of config.json's value and names their place when they are not what they must be."""

    def __init__(self, path: str) -> None:
        self.path = path

    def refuse(self, key: str, value: object, wanted: str) -> BadBundle:
        found = "missing" if value is None else f"{type(value).__name__} {value!r:.60}"
        return BadBundle(f"{key} is {found}; it must be {wanted}", where=f"{self.path}/config.json: {key}", hint=HINT)

    def table(self, value: object, key: str, known: tuple[str, ...]) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.refuse(key, value, "an object")
        for name in value:
            if name not in known and name.casefold() in known:
                raise BadBundle(
                    f"the key {name!r} stands where {name.casefold()!r} is meant; runtimes differ in what they read",
                    where=f"{self.path}/config.json: {key}",
                    hint=HINT,
                )
        return value

    def text(self, value: object, key: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.refuse(key, value, "a string")
        return value

    def items(self, value: object, key: str) -> list[object]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(key, value, "a list")
        return value

    def texts(self, value: object, key: str) -> list[str]:
        items = ["" if item is None else item for item in self.items(value, key)]
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) != len(items):
            number, item = next((n, item) for n, item in enumerate(items) if not isinstance(item, str))
            raise self.refuse(f"{key}[{number}]", item, "a string")
        return texts


def parse_bundle(path: str, value: object) -> Bundle:
    """The configuration out of config.json's value. Raises BadBundle with the key at fault."""
    read = _Reader(path)
    spec = read.table(value, "the document", ("ociversion", "ociVersion", "process", "root", "mounts"))
    version = spec.get("ociVersion")
    if not isinstance(version, str) or "ociversion" in spec:
        raise read.refuse("ociVersion", version, "a string")
    process = read.table(spec.get("process"), "process", ("env", "capabilities"))
    root = read.table(spec.get("root"), "root", ("path",))
    entries = read.texts(process.get("env"), "process.env")
    return Bundle(
        path=path,
        env=_environment(entries),
        mounts=tuple(
            _mount(read, item, number) for number, item in enumerate(read.items(spec.get("mounts"), "mounts"))
        ),
        root_path=read.text(root.get("path"), "root.path"),
        privileged=_privileged(read, version, process.get("capabilities")),
        ignored=tuple(entry for entry in entries if entry.find("=") < 1),
        device_rules=_device_rules(spec),
    )


def _device_rules(spec: dict[str, object]) -> tuple[object, ...]:
    """linux.resources.devices, or nothing where the file has no such list."""
    value: object = spec
    for key in ("linux", "resources", "devices"):
        value = value.get(key) if isinstance(value, dict) else None
    return tuple(value) if isinstance(value, list) else ()


def _environment(entries: list[str]) -> dict[str, str]:
    """The variables; of a name given twice the last value, as runtimes do it. Entries without a name are left out."""
    env = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if name and equals:
            env[name] = value
    return env


def _mount(read: _Reader, value: object, number: int) -> Mount:
    key = f"mounts[{number}]"
    table = read.table({} if value is None else value, key, MOUNT_KEYS)
    read.text(table.get("type"), f"{key}.type")
    read.texts(table.get("options"), f"{key}.options")
    for name in ("uidMappings", "gidMappings"):
        for item in read.items(table.get(name), f"{key}.{name}"):
            _check_mapping(read, item, f"{key}.{name}")
    return Mount(
        destination=read.text(table.get("destination"), f"{key}.destination"),
        source=read.text(table.get("source"), f"{key}.source"),
        index=number,
    )


def _check_mapping(read: _Reader, value: object, key: str) -> None:
    """A mapping of user or group ids is not for us; one that the runtime cannot read is refused here as there."""
    table = read.table({} if value is None else value, key, ())
    for name in ("containerID", "hostID", "size"):
        number = table.get(name, 0)
        if number is not None and not (type(number) is int and 0 <= number < 1 << 32):
            raise read.refuse(f"{key}.{name}", number, "a whole number of 32 bits")


def _privileged(read: _Reader, version: str, value: object) -> bool:
    """Whether CAP_SYS_ADMIN is in the bounding set: the one meaning of "privileged" here."""
    key = "process.capabilities"
    if value is None:
        return False
    if has_capability_list(version):
        return "CAP_SYS_ADMIN" in read.texts(value, key)
    table = read.table(value, key, SETS)
    sets = {name: read.texts(table.get(name), f"{key}.{name}") for name in SETS}
    return "CAP_SYS_ADMIN" in sets["bounding"]


def has_capability_list(version: str) -> bool:
    """Whether config.json of this ociVersion has one list of capabilities: 1.0.0-rc1 up to, not including, rc5.

    Identifiers of a pre-release compare as text, so rc10 falls in the range. No valid version: the later form.
    """
    parsed = semantic_version(version)
    return parsed is not None and parsed[:3] == (1, 0, 0) and "rc1" <= parsed[3].partition(".")[0] < "rc5"


def semantic_version(text: str) -> tuple[int, int, int, str] | None:
    """Major, minor, patch and pre-release of a version; None where it is none.

    As runtimes read versions, more kindly than Semantic Versioning 2.0.0 itself: a leading v, leading zeros and
    fewer than three numbers are fine. Numbers have 64 bits, the whole at most 256 characters.
    """
    core, plus, build = text.removeprefix("v").partition("+")
    dotted, dash, pre = core.partition("-")
    parts = dotted.split(".")
    if len(text) > 256 or len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    if (plus and not _identifiers_valid(build, leading_zeros=True)) or (
        dash and not _identifiers_valid(pre, leading_zeros=False)
    ):
        return None
    major, minor, patch = (*map(int, parts), 0, 0)[:3]
    return (major, minor, patch, pre) if max(major, minor, patch) < 1 << 64 else None


def _identifiers_valid(text: str, *, leading_zeros: bool) -> bool:
    """Whether the text is a dotted list of identifiers as Semantic Versioning 2.0.0 wants them (rules 9 and 10)."""
    for word in text.split("."):
        if not word or not word.isascii() or (not word.replace("-", "").isalnum() and word.strip("-")):
            return False
        if not leading_zeros and word.isdigit() and word.startswith("0") and word != "0":
            return False
    return True
