"""What `create` does to a bundle."""

from __future__ import annotations

import json
import os
import posix
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuhook.errors import BadBundle
from gpuhook.runtime import replace
from tests.rig.needs import need
from tests.rig.process import PATH, run
from tests.shim.stand import Stand, hooks_of, spec_of

ALL = "NVIDIA_VISIBLE_DEVICES=all"
SYSTEMD = "--systemd-cgroup"


def test_our_hook_is_added_once(stand: Stand) -> None:
    """With its launcher beside the shim, and an environment of its own (AC-67); a second create adds nothing."""
    bundle = stand.bundle(ALL)
    config = stand.config()
    assert stand.create(bundle, config=config).status == 0
    env = [f"PATH={PATH}", f"NVIDIA_CTK_CONFIG_FILE_PATH={config}"]
    hook = {"path": f"{stand.folder}/gpuhook", "args": ["gpuhook", "prestart"], "env": env}
    assert hooks_of(bundle) == [hook]
    before = (bundle / "config.json").stat()
    assert stand.create(bundle, config=config).status == 0
    assert (bundle / "config.json").stat().st_ino == before.st_ino
    assert hooks_of(bundle) == [hook]


@pytest.mark.parametrize("env", [(), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=",)])
def test_a_container_without_request_is_left_alone(stand: Stand, env: tuple[str, ...]) -> None:
    """Its config.json is the very same file."""
    bundle = stand.bundle(*env)
    before = (bundle / "config.json").stat()
    result = stand.create(bundle)
    after = (bundle / "config.json").stat()
    assert (result.status, result.stderr) == (0, "")
    assert (before.st_ino, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_ino, after.st_mtime_ns, after.st_ctime_ns,
    )  # fmt: skip


def test_run_makes_a_container_too(stand: Stand) -> None:
    """Podman's and a person's `run` get the hook as well."""
    bundle = stand.bundle(ALL)
    assert stand.run("run", "-b", bundle, "c1").status == 0
    assert len(hooks_of(bundle)) == 1


def test_the_current_folder_is_the_usual_bundle(stand: Stand) -> None:
    """And a relative one starts from there."""
    bundle = stand.bundle(ALL)
    assert stand.run("create", "c1", cwd=str(bundle)).status == 0
    other = stand.bundle(ALL)
    assert stand.run("create", "-b", other.name, "c1", cwd=str(stand.folder)).status == 0
    assert (len(hooks_of(bundle)), len(hooks_of(other))) == (1, 1)


RAW = (
    b'{"zeta":18446744073709551615,"process":{"env":["A=\xe6\x97\xa5","NVIDIA_VISIBLE_DEVICES=all"],'
    b'"new":1.0E+2},\n "root":{"path":"r"}, "alpha":{"\\u0041":-0.10}, "ociVersion":"1.2.0"}\n'
)


def test_what_nobody_knows_stays_as_it_is(stand: Stand) -> None:
    """Order, 64-bit numbers, spellings, blanks and text that is not ASCII: every byte but the hook's (AC-79)."""
    bundle = stand.bundle()
    (bundle / "config.json").write_bytes(RAW)
    assert stand.create(bundle).status == 0
    new = (bundle / "config.json").read_bytes()
    head, hook, tail = new.partition(b',"hooks":')
    assert (head + b"}\n", tail[-2:]) == (RAW, b"}\n")
    assert json.loads(b"{" + hook[1:] + tail)["hooks"]["prestart"][0]["args"] == ["gpuhook", "prestart"]


@pytest.mark.attack
def test_mode_owner_and_attributes_stay(stand: Stand) -> None:
    """The new file is the old one in everything but its content (AC-79)."""
    need()
    bundle = stand.bundle(ALL)
    file = bundle / "config.json"
    file.chmod(0o640)
    os.chown(file, 1000, 1001)
    with suppress(OSError):  # not every file system has them
        os.setxattr(file, "user.mark", b"kept")
    attributes = os.listxattr(file)
    assert stand.create(bundle).status == 0
    status = file.stat()
    assert (len(hooks_of(bundle)), status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1, 1000, 1001, 0o640)
    assert os.listxattr(file) == attributes


@pytest.mark.attack
def test_another_name_of_the_file_keeps_its_content(stand: Stand) -> None:
    """A hard link to somebody's file is not written through (AC-79)."""
    bundle = stand.bundle(ALL)
    os.link(bundle / "config.json", stand.folder / "theirs")
    before = (stand.folder / "theirs").read_bytes()
    assert stand.create(bundle).status == 0
    assert ((stand.folder / "theirs").read_bytes(), len(hooks_of(bundle))) == (before, 1)


@pytest.mark.attack
def test_a_link_is_not_followed(stand: Stand) -> None:
    """Neither for reading nor for writing, and the message says what it is (AC-55, AC-79)."""
    bundle = stand.bundle(ALL)
    os.rename(bundle / "config.json", stand.folder / "theirs")
    os.symlink(stand.folder / "theirs", bundle / "config.json")
    before = (stand.folder / "theirs").read_bytes()
    result = stand.create(bundle)
    assert (result.status, stand.argv) == (1, None)
    assert "bad-bundle: cannot edit" in result.stderr
    assert "config.json: it is a link" in result.stderr
    assert (stand.folder / "theirs").read_bytes() == before


@pytest.mark.attack
@pytest.mark.parametrize("place", ["", "config.json"])
def test_an_immutable_bundle_is_said(stand: Stand, place: str) -> None:
    """Nothing is left beside it, the container does not start; without a request it starts as it is (AC-79)."""
    need("chattr")
    for bundle, status in ((stand.bundle(ALL), 1), (stand.bundle(), 0)):
        assert run(["chattr", "+i", str(bundle / place)]).status == 0
        try:
            result = stand.create(bundle)
        finally:
            run(["chattr", "-i", str(bundle / place)])
        assert (result.status, stand.argv is not None) == (status, not status)
        assert ("cannot edit" in result.stderr) == bool(status)
        assert sorted(os.listdir(bundle)) == ["config.json", "rootfs"]


@pytest.mark.attack
def test_a_full_disk_changes_nothing(stand: Stand) -> None:
    """The old file stays, whole; no scrap is left; the container does not start (AC-79)."""
    need("unshare")
    bundle, config = stand.bundle(ALL), stand.config()
    place = stand.folder / "small"
    place.mkdir()
    script = (
        f"mount -t tmpfs -o size=8k none {place} && cp {bundle}/config.json {place} && "
        f"{{ yes > {place}/filler; cp {place}/config.json {stand.folder}/before; "
        f"NVIDIA_CTK_CONFIG_FILE_PATH={config} {stand.shim} create -b {place} c1; echo $?; "
        f"cmp {place}/config.json {stand.folder}/before && ls -A {place}; }}"
    )
    stand.forget()
    result = run(["unshare", "--mount", "sh", "-c", script])
    assert result.stdout.split() == ["1", "config.json", "filler"]
    assert "No space left on device" in result.stderr
    assert stand.argv is None


@pytest.mark.attack
def test_two_programs_that_edit_at_once(tmp_path: Path) -> None:
    """Who comes second notices that the file is not the one that was read."""
    file = tmp_path / "config.json"
    file.write_text("{}")
    old = os.stat(file)
    (tmp_path / "new").write_text('{"theirs":1}')
    os.rename(tmp_path / "new", file)
    folder = posix.open(str(tmp_path), replace.FOLDER)
    with pytest.raises(BadBundle, match=r"config\.json was changed by another program"):
        replace.replace(folder, "config.json", b"{}", old, str(file))
    posix.close(folder)
    assert (os.listdir(tmp_path), file.read_text()) == (["config.json"], '{"theirs":1}')


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "cannot edit {}/config.json: No such file or directory"),
        (b"", "is not JSON: it is empty"),
        (b'{"ociVersion":"1', "is not JSON"),
        (b"[]", "is list; it must be an object"),
        (b'{"ociVersion":"1.0.2","ociVersion":"1.0.2"}', "the key 'ociVersion' is given twice"),
        (b"\xff{}", "byte 0 is not UTF-8"),
        (RAW.replace(b'"zeta"', b'"hooks":"x","zeta"'), "hooks is str 'x'; it must be an object"),
        (RAW.replace(b'"zeta"', b'"Hooks":{},"zeta"'), "the key 'Hooks' stands where 'hooks' is meant"),
    ],
)
def test_a_bundle_that_cannot_be_read_is_refused(stand: Stand, data: bytes | None, says: str) -> None:
    """Before the low-level runtime starts, and with the place named."""
    bundle = stand.bundle()
    (bundle / "config.json").unlink()
    if data is not None:
        (bundle / "config.json").write_bytes(data)
    result = stand.create(bundle)
    assert (result.status, stand.argv) == (1, None)
    assert says.format(bundle) in result.stderr
    assert result.stderr.startswith("gpuhook: bad-bundle: ")
    assert "Traceback" not in result.stderr


def test_what_others_can_write_is_refused_for_gpu_containers(stand: Stand) -> None:
    """What the hook will refuse as well; a container that asks for no GPU has nothing to lose."""
    bundle, other = stand.bundle(ALL), stand.bundle()
    for each in (bundle, other):
        (each / "config.json").chmod(0o666)
    result = stand.create(bundle)
    assert (result.status, stand.argv) == (1, None)
    assert "others can write config.json (mode 0666)" in result.stderr
    assert stand.create(other).status == 0


# Which hook


def hook_paths(stand: Stand, config: str) -> tuple[list[str], str]:
    """The paths of the hooks that are added under this configuration, and what is said."""
    bundle = stand.bundle(ALL)
    result = stand.create(bundle, config=config)
    assert result.status == 0, result.stderr
    return [entry["path"] for entry in hooks_of(bundle)], result.stderr


@pytest.mark.parametrize("path", ["", "nvidia-container-runtime-hook"])
def test_nvidias_default_name_means_ours(stand: Stand, path: str) -> None:
    """It stands in every config.toml that NVIDIA's packages install (decisions.md 26)."""
    config = stand.config(f'[nvidia-container-runtime-hook]\npath = "{path}"')
    assert hook_paths(stand, config) == ([f"{stand.folder}/gpuhook"], "")


def test_an_explicit_path_wins(stand: Stand) -> None:
    """Also where there is nothing yet, with a warning."""
    (stand.folder / "my-hook").write_text("")
    (stand.folder / "my-hook").chmod(0o755)
    config = stand.config(f'[nvidia-container-runtime-hook]\npath = "{stand.folder}/my-hook"')
    assert hook_paths(stand, config) == ([f"{stand.folder}/my-hook"], "")
    (stand.folder / "my-hook").unlink()
    paths, said = hook_paths(stand, config)
    assert paths == [f"{stand.folder}/my-hook"]
    assert said == f"gpuhook: warning: hook-binary-missing: the hook {paths[0]} does not exist on this machine\n"


def test_a_name_is_looked_up_in_path(stand: Stand) -> None:
    """Found nowhere, and for a relative path, it is ours, with a warning."""
    (stand.folder / "bin").mkdir()
    (stand.folder / "bin" / "my-hook").write_text("")
    (stand.folder / "bin" / "my-hook").chmod(0o755)
    config = stand.config('[nvidia-container-runtime-hook]\npath = "my-hook"')
    bundle = stand.bundle(ALL)
    assert stand.create(bundle, config=config, env={"PATH": f"{stand.folder}/bin"}).status == 0
    assert hooks_of(bundle)[0]["path"] == f"{stand.folder}/bin/my-hook"
    paths, said = hook_paths(stand, config)
    assert paths == [f"{stand.folder}/gpuhook"]
    assert "the hook my-hook is no absolute path and in no folder of PATH" in said
    config = stand.config('[nvidia-container-runtime-hook]\npath = "bin/my-hook"')
    assert hook_paths(stand, config)[0] == [f"{stand.folder}/gpuhook"]


def test_the_hook_is_found_through_a_link(stand: Stand) -> None:
    """The shim may be a link under NVIDIA's name in another folder."""
    (stand.folder / "usr").mkdir()
    os.symlink("../gpuhook-runtime", stand.folder / "usr" / "nvidia-container-runtime")
    stand.shim = f"{stand.folder}/usr/nvidia-container-runtime"
    assert [os.path.realpath(path) for path in hook_paths(stand, stand.config())[0]] == [f"{stand.folder}/gpuhook"]


def test_our_hook_under_nvidias_name_will_do(stand: Stand) -> None:
    """Where only NVIDIA's names were installed; somebody else's program of that name is no hook of ours."""
    os.rename(stand.folder / "gpuhook", stand.folder / "nvidia-container-runtime-hook")
    assert hook_paths(stand, stand.config())[0] == [f"{stand.folder}/nvidia-container-runtime-hook"]
    (stand.folder / "nvidia-container-runtime-hook").write_text("#!/bin/sh\n")
    paths, said = hook_paths(stand, stand.config())
    assert paths != [f"{stand.folder}/nvidia-container-runtime-hook"]
    assert "does not exist on this machine" in said or Path(paths[0]).exists()


def test_the_hooks_environment_is_what_it_obeys(stand: Stand) -> None:
    """Absolute folders, the configuration's choice and the debug switch; nothing that steers programs."""
    bundle = stand.bundle(ALL)
    env = {
        "PATH": f":bin:{PATH}",
        "LD_PRELOAD": "",
        "PYTHONPATH": "/x",
        "GPUHOOK_DEBUG": "1",
        "XDG_CONFIG_HOME": "/n\t",
    }
    config = stand.config()
    assert stand.create(bundle, config=config, env=env).status == 0
    wanted = [f"PATH={PATH}", f"NVIDIA_CTK_CONFIG_FILE_PATH={config}", "GPUHOOK_DEBUG=1"]
    assert hooks_of(bundle)[0]["env"] == wanted


# Modes


@pytest.mark.parametrize("mode", ["auto", "legacy", "jit-cdi"])
def test_modes_that_mean_the_hook(stand: Stand, mode: str) -> None:
    """All three (decisions.md 25)."""
    bundle = stand.bundle(ALL)
    assert stand.create(bundle, config=stand.config(mode=mode)).status == 0
    assert len(hooks_of(bundle)) == 1


@pytest.mark.parametrize("mode", ["cdi", "csv"])
def test_modes_that_mean_another_way_are_refused(stand: Stand, mode: str) -> None:
    """For GPU containers only, with the file and the remedy (decisions.md 25)."""
    bundle, config = stand.bundle(ALL), stand.config(mode=mode)
    result = stand.create(bundle, config=config)
    assert (result.status, stand.argv, hooks_of(bundle)) == (1, None, [])
    assert f"the mode {mode} is not served by gpuhook-runtime" in result.stderr
    assert f'set mode = "auto" in {config}' in result.stderr
    assert stand.create(stand.bundle(), config=config).status == 0


# Devices

NODES = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def devices_of(bundle: Path) -> tuple[list[str], list[tuple[int, int]]]:
    """Paths of nodes, and numbers of rules that allow reading and writing, in a specification."""
    linux = spec_of(bundle).get("linux") or {}
    rules = (linux.get("resources") or {}).get("devices") or []
    numbers = [(rule["major"], rule["minor"]) for rule in rules if rule.get("access") == "rw" and rule["allow"]]
    return [node["path"] for node in linux.get("devices") or []], numbers


def created(stand: Stand, *env: str, options: tuple[str, ...] = (SYSTEMD,), **changes: Any) -> Path:
    """A bundle after its create."""
    bundle = stand.bundle(*env, **changes)
    result = stand.create(bundle, *options)
    assert result.status == 0, result.stderr
    assert len(hooks_of(bundle)) == 1
    return bundle


@pytest.mark.parametrize(
    ("asked", "minors"), [("1", [0]), ("0,2", [2, 1]), ("all", [2, 0, 1]), ("none", []), ("GPU-2c00", [1])]
)
def test_nodes_stand_in_the_spec_where_systemd_manages_cgroups(
    gpu_stand: Stand, asked: str, minors: list[int]
) -> None:
    """The common ones and those of the GPUs that were asked for, each with a rule, so that a reload keeps them."""
    paths, numbers = devices_of(created(gpu_stand, f"NVIDIA_VISIBLE_DEVICES={asked}"))
    assert paths == [*NODES, *(f"/dev/nvidia{minor}" for minor in minors)]
    assert numbers == [(195, 255), (511, 0), (511, 1), *((195, minor) for minor in minors)]


def test_a_node_is_as_the_host_has_it(gpu_stand: Stand) -> None:
    """Number, mode and owner."""
    node = spec_of(created(gpu_stand, "NVIDIA_VISIBLE_DEVICES=1"))["linux"]["devices"][-1]
    status = os.stat(f"{gpu_stand.root}/dev/nvidia0")
    assert node == {
        "path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0,
        "fileMode": status.st_mode & 0o777, "uid": status.st_uid, "gid": status.st_gid,
    }  # fmt: skip


def test_capabilities_decide_about_nodes(gpu_stand: Stand) -> None:
    """Without compute there is no unified memory."""
    paths, _ = devices_of(created(gpu_stand, "NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=utility"))
    assert paths == ["/dev/nvidiactl", "/dev/nvidia0"]


def test_elsewhere_the_hook_does_it_alone(gpu_stand: Stand) -> None:
    """Nothing but the hook is added where systemd has nothing to do with it."""
    if Path("/run/systemd/system").exists():
        pytest.skip("systemd runs this machine")
    assert devices_of(created(gpu_stand, ALL, options=())) == ([], [])


def test_the_machines_systemd_is_noticed(gpu_stand: Stand) -> None:
    """A runtime that was not told so has its cgroups in systemd's tree as well."""
    need("unshare")
    bundle, config = gpu_stand.bundle(ALL), gpu_stand.config()
    call = f"NVIDIA_CTK_CONFIG_FILE_PATH={config} {gpu_stand.shim} create -b {bundle} c1"
    script = f"mount -t tmpfs none /run && mkdir -p /run/systemd/system && {call}"
    assert run(["unshare", "--mount", "sh", "-c", script]).status == 0
    assert len(devices_of(bundle)[0]) == 6


def test_a_hook_that_is_there_does_not_keep_nodes_away(gpu_stand: Stand) -> None:
    """The option --gpus of docker has put it there, and it cannot write into the specification."""
    hook = {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["nvidia-container-runtime-hook", "prestart"]}
    bundle = created(gpu_stand, ALL, hooks={"prestart": [hook]})
    assert hooks_of(bundle) == [hook]
    assert len(devices_of(bundle)[0]) == 6


def test_a_users_own_node_and_mount_stay(gpu_stand: Stand) -> None:
    """Only what is missing is added, and rules that allow everything need no others."""
    linux = {"resources": {"devices": [{"allow": True, "access": "rwm"}]}}
    mounts = [{"destination": "/dev/nvidia0", "source": "/dev/null", "type": "bind", "options": ["bind"]}]
    bundle = created(gpu_stand, "NVIDIA_VISIBLE_DEVICES=1", linux=linux, mounts=mounts)
    assert devices_of(bundle) == (NODES, [])
    assert spec_of(bundle)["mounts"] == mounts


@pytest.mark.parametrize(
    "changes",
    [
        {"linux": {"namespaces": [{"type": "mount"}, {"type": "user"}]}},
        {"mounts": [{"destination": "/dev/", "source": "/dev", "type": "bind", "options": ["rbind"]}]},
    ],
    ids=["user namespace", "the host's /dev"],
)
def test_no_node_is_made_where_it_would_be_the_hosts(gpu_stand: Stand, changes: dict[str, Any]) -> None:
    """Rules alone then; the hook puts the nodes there."""
    paths, numbers = devices_of(created(gpu_stand, "NVIDIA_VISIBLE_DEVICES=1", **changes))
    assert (paths, len(numbers)) == ([], 4)


def test_a_fresh_dev_gets_nodes(gpu_stand: Stand) -> None:
    """What engines mount at /dev is a tmpfs."""
    mounts = [{"destination": "/dev", "source": "tmpfs", "type": "tmpfs"}]
    assert len(devices_of(created(gpu_stand, "NVIDIA_VISIBLE_DEVICES=1", mounts=mounts))[0]) == 4


@pytest.mark.parametrize("asked", ["7", "GPU-ffffffff", "x y"])
def test_what_the_hook_will_refuse_is_the_hooks_to_say(gpu_stand: Stand, asked: str) -> None:
    """The hook is added, the reason for no nodes is in the log, and the hook ends the container's start."""
    bundle = gpu_stand.bundle(f"NVIDIA_VISIBLE_DEVICES={asked}")
    log = f"{gpu_stand.folder}/log"
    assert gpu_stand.create(bundle, SYSTEMD, "--log", log).status == 0
    assert (len(hooks_of(bundle)), devices_of(bundle)) == (1, ([], []))
    assert 'level=warning msg="gpuhook: systemd-reload-loses-gpu: no device nodes' in Path(log).read_text()


def test_a_machine_without_a_driver_gets_the_hook_alone(stand: Stand) -> None:
    """The hook says what is missing."""
    stand.root = str(stand.folder / "nothing")
    bundle = stand.bundle(ALL)
    assert stand.create(bundle, SYSTEMD, config=stand.config()).status == 0
    assert (len(hooks_of(bundle)), devices_of(bundle)) == (1, ([], []))
