"""The container's device rules: which cgroup holds it, and letting it read and write devices there.

cgroup v1 takes lines of text; cgroup v2 has programs (gpuhook.kernel.bpf). The group comes from what the kernel says
of the process (cgroups(7)), parts of which the container's author chose; before anything is written, the opened
folder itself must name the process.
"""

from __future__ import annotations

import posix
from errno import EACCES, ENODEV, ENOENT, EOPNOTSUPP, EPERM, ESRCH

from gpuhook.kernel.files import read_file
from gpuhook.kernel.mounts import parse_mountinfo
from gpuhook.kernel.undo import Undo
from gpuhook.refusals import BadContainer, CgroupFailed
from gpuhook.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.kernel.mounts import MountPoint

    Device = tuple[int, int]

_MAGIC = {1: 0x27E0EB, 2: 0x63677270}  # linux/magic.h
_TYPES = {1: "cgroup", 2: "cgroup2"}
_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_WRITE = posix.O_WRONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_MOST_DEVICES = 8192
GONE = (ENOENT, ENODEV, ESRCH)  # what is said of a group, or a process, that was removed meanwhile


class DeviceGroup(Value):
    """The cgroup that decides about a process's devices. Nothing is open.

    version: 1 or 2; folder: absolute path; pid: the process, which the folder must name when it is opened; shared:
    it holds this process too, directly or further down, so that nothing may be changed in it.
    """

    version: int
    folder: str
    pid: int
    shared: bool = False


def find_group(pid: int, proc: str = "/proc") -> DeviceGroup:
    """The group that filters this process's devices: of the v1 devices controller where that is in use, else of v2.

    proc: where procfs is. Raises CgroupFailed if there is none, or if it lies outside of what we see, and
    BadContainer for a process that has ended.
    """
    try:
        theirs, ours = (group_paths(_read(f"{proc}/{who}/cgroup")) for who in (pid, "self"))
        table = _read(f"{proc}/self/mountinfo")
    except OSError as error:
        if error.errno == ESRCH or (error.errno == ENOENT and error.filename == f"{proc}/{pid}/cgroup"):
            raise BadContainer(f"the container's process {pid} has ended", where="stdin: pid") from None
        raise CgroupFailed(f"the cgroup of process {pid} cannot be read: {error.strerror}", where=proc) from None
    # On nodes with many containers the table is long, and only its cgroup lines are of interest.
    mounts = parse_mountinfo(b"\n".join(line for line in table.split(b"\n") if b" - cgroup" in line))
    for version in sorted(theirs):
        found = [folder for mount, folder in folders(version, theirs[version], mounts) if _visible(mount)]
        if found:
            shared = _starts_with(_parts(ours.get(version, "/")), _parts(theirs[version]))
            return DeviceGroup(version=version, folder=found[0], pid=pid, shared=shared)
        if theirs[version] != "/":  # not in its hierarchy's root, so something is decided there, and we cannot see it
            break
    raise CgroupFailed(
        f"no cgroup that decides about the devices of process {pid} is mounted here: {theirs or 'it is in none'}",
        where=f"{proc}/self/mountinfo",
        hint="run the runtime where /sys/fs/cgroup is the host's, or set no-cgroups = true",
    )


def group_paths(data: bytes) -> dict[int, str]:
    """From /proc/PID/cgroup: the path in the hierarchy with the v1 devices controller (1) and in v2's (2)."""
    paths = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")  # further colons belong to the path
        if colon and "devices" in controllers.split(","):
            paths[1] = path
        elif colon and number == "0" and not controllers:
            paths[2] = path
    return paths


def folders(version: int, path: str, mounts: Iterable[MountPoint]) -> list[tuple[MountPoint, str]]:
    """Where a cgroup can be found: the mounts that hold it, each with the group's folder.

    path: in its hierarchy, as /proc/PID/cgroup has it. Raises CgroupFailed if it leads out of our cgroup namespace.
    """
    parts, found = _parts(path), []
    for mount in mounts:
        root = mount.root.split("/")
        wanted = mount.filesystem == _TYPES[version] and (version == 2 or "devices" in mount.options)
        if not wanted or ".." in root:  # mounted from a cgroup namespace above: we cannot say what is where
            continue
        root = _parts(mount.root)
        if _starts_with(parts, root):
            found.append((mount, "/".join([mount.point.rstrip("/"), *parts[len(root) :]])))
    return found


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if not path.startswith("/") or ".." in parts:
        raise CgroupFailed(
            f"the cgroup {path} lies outside of what this process sees",
            hint="run the runtime in the cgroup namespace of its containers, or set no-cgroups = true",
        )
    return parts


def _starts_with(parts: list[str], beginning: list[str]) -> bool:
    return parts[: len(beginning)] == beginning


def _visible(mount: MountPoint) -> bool:
    """Whether a mount can be reached by its path, or lies below another one."""
    major, _, minor = mount.device.partition(":")
    try:
        return posix.stat(_bytes(mount.point)).st_dev == posix.makedev(int(major), int(minor))
    except (OSError, ValueError):
        return False


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _read(path: str, dir_fd: int | None = None) -> bytes:
    return read_file(path, 1 << 26, links=True, dir_fd=dir_fd)[0]


def filtered(group: DeviceGroup) -> bool:
    """Whether anything in this group (v2: or above it) decides about devices. Raises CgroupFailed."""
    undo = Undo()
    try:
        folder = _open(group, undo)
        if group.version == 1:
            return ("a", "*", "*", "rwm") not in _rules(folder)
        from gpuhook.kernel import bpf

        return bool(bpf.query(folder, effective=True)[0])
    except OSError as error:
        raise _failed(group, error) from None
    finally:
        undo.close()


def allow(group: DeviceGroup, devices: Sequence[Device]) -> Undo:
    """Let the group read and write these character devices (major, minor), never make nodes of them.

    Nothing is changed for devices that it may use already, so a second call does nothing. What groups above forbid
    stays forbidden, with a warning (v2) or an error (v1, where the kernel refuses the rule). Raises CgroupFailed, and
    then nothing is changed.
    """
    undo = Undo()
    try:
        if devices:
            checked = _checked(devices)
            _change(group, _open(group, undo), checked, undo)
    except OSError as error:
        undo()
        raise _failed(group, error) from None
    except CgroupFailed:
        undo()
        raise
    return undo


def _checked(devices: Sequence[Device]) -> list[Device]:
    """Each device once, in order; numbers as the kernel can have them (12 and 20 bits)."""
    for major, minor in devices:
        if not (0 <= major < 1 << 12 and 0 <= minor < 1 << 20):
            raise CgroupFailed(f"{major}:{minor} is no device number")
    if len(devices) > _MOST_DEVICES:
        raise CgroupFailed(f"{len(devices)} devices are more than the {_MOST_DEVICES} that one container can be given")
    return sorted(set(devices))


def _open(group: DeviceGroup, undo: Undo) -> int:
    """The group's folder: a cgroup of that version, in which the process is. Raises OSError and CgroupFailed."""
    from gpuhook.kernel.bpf import filesystem

    folder = undo.keep(posix.open(_bytes(group.folder), _FOLDER))
    found = filesystem(folder)
    if found != _MAGIC[group.version]:
        raise CgroupFailed(f"{group.folder} is no cgroup v{group.version} (filesystem {found:#x})")
    if str(group.pid).encode() not in _members(folder):
        raise CgroupFailed(
            f"process {group.pid} is not in the cgroup {group.folder}", hint="start the container again"
        )
    return folder


def _members(folder: int) -> list[bytes]:
    try:
        return _read("cgroup.procs", folder).split()
    except OSError as error:
        if error.errno != EOPNOTSUPP:
            raise
    return _read("cgroup.threads", folder).split()  # a threaded group of v2 names no processes


def _failed(group: DeviceGroup, error: OSError) -> CgroupFailed:
    hint = "start the container again"
    if error.errno in (EPERM, EACCES):
        hint = "rootless engines cannot write device rules: leave no-cgroups unset there, or set it to true"
        if group.version == 1:
            hint = f"the cgroup above forbids the devices, or this is a rootless engine; {hint}"
    elif error.errno not in GONE:
        hint = "set no-cgroups = true and have the runtime allow the devices"
    return CgroupFailed(f"the device rules cannot be changed: {error.strerror}", where=group.folder, hint=hint)


def _refuse_shared(group: DeviceGroup) -> None:
    if group.shared:
        raise CgroupFailed(
            "the container has no cgroup of its own, and rules for it would hold for its engine too",
            where=group.folder,
            hint="start it with a cgroup (not --cgroups=disabled), or set no-cgroups = true",
        )


def _change(group: DeviceGroup, folder: int, devices: list[Device], undo: Undo) -> None:
    if group.version == 1:
        return _allow_v1(group, folder, devices, undo)
    from gpuhook.kernel import bpf

    return bpf.extend(folder, devices, undo, lambda: _refuse_shared(group))


def _allow_v1(group: DeviceGroup, folder: int, devices: list[Device], undo: Undo) -> None:
    rules = _rules(folder)
    for major, minor in devices:
        if any(_covers(rule, major, minor) for rule in rules):
            continue
        _refuse_shared(group)
        _write(folder, "devices.allow", f"c {major}:{minor} rw")
        had = "".join(access for *rule, access in rules if rule == ["c", str(major), str(minor)])
        added = "".join(letter for letter in "rw" if letter not in had)
        undo.add(_deny, folder, f"c {major}:{minor} {added}")


def _deny(folder: int, rule: str) -> None:
    """Take a v1 rule back; with a group that is gone by now its rules are gone too."""
    try:
        _write(folder, "devices.deny", rule)
    except OSError as error:
        if error.errno not in GONE:
            raise


def _rules(folder: int) -> list[tuple[str, str, str, str]]:
    """The lines of devices.list: type, major and minor or `*`, access. `a *:* rwm` means that nothing is filtered."""
    rules = []
    for line in _read("devices.list", folder).decode("ascii").splitlines():
        kind, numbers, access = line.split(" ")
        major, _, minor = numbers.partition(":")
        rules.append((kind, major, minor, access))
    return rules


def _covers(rule: tuple[str, str, str, str], major: int, minor: int) -> bool:
    """Whether one v1 rule alone lets a character device be read and written: the kernel never adds up two."""
    kind, its_major, its_minor, access = rule
    fits = kind in "ac" and its_major in ("*", str(major)) and its_minor in ("*", str(minor))
    return fits and "r" in access and "w" in access


def _write(folder: int, name: str, line: str) -> None:
    fd = posix.open(name, _WRITE, dir_fd=folder)
    try:
        posix.write(fd, line.encode())  # one rule a write
    finally:
        posix.close(fd)
