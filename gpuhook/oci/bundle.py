"""The bundle's config.json, as far as the hook needs it (OCI runtime specification, "Configuration").

The engine writes the structure; the strings in it come from the image and are hostile. Unknown fields are
fine. What two readers could understand differently is refused: a key given twice, or in another case (Go
takes `Root` for `root`).
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


class Mount(Value):
    """One entry of config.json's mounts."""

    destination: str
    source: str
    index: int


class Bundle(Value):
    """What the hook needs of a container's configuration.

    path: of the bundle; env: the last value of each variable; mounts: in the order of the file; root_path: as
    given, relative to the bundle; privileged: CAP_SYS_ADMIN is in the bounding set; ignored: entries of the
    environment that are no NAME=value.
    """

    path: str
    env: dict[str, str]
    mounts: tuple[Mount, ...]
    root_path: str
    privileged: bool = False
    ignored: tuple[str, ...] = ()

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
        items = self.items(value, key)
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
    )


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
    table = read.table(value, key, ("destination", "source"))
    return Mount(
        destination=read.text(table.get("destination"), f"{key}.destination"),
        source=read.text(table.get("source"), f"{key}.source"),
        index=number,
    )


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
    core, _, build = version.removeprefix("v").partition("+")
    numbers, dash, pre = core.partition("-")
    if numbers != "1.0.0" or not dash or ("+" in version and not _identifiers_valid(build, leading_zeros=True)):
        return False
    return _identifiers_valid(pre, leading_zeros=False) and "rc1" <= pre.partition(".")[0] < "rc5"


def _identifiers_valid(text: str, *, leading_zeros: bool) -> bool:
    """Whether the text is a dotted list of identifiers as Semantic Versioning 2.0.0 wants them (rules 9 and 10)."""
    for word in text.split("."):
        if not word or not word.isascii() or (not word.replace("-", "").isalnum() and word.strip("-")):
            return False
        if not leading_zeros and word.isdigit() and word.startswith("0") and word != "0":
            return False
    return True
