"""An ordinary user of a machine of its own: account, subordinate ids, runtime folder, and gpuhook where all can read.

Everything lies in the private /etc, /var/lib and /run of a Site, and goes with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from tests.daemons.site import PROJECT, Site, make_site
from tests.rig.needs import refuse
from tests.rig.process import PATH, Result, run
from tests.rig.rootfs import make_rootfs

UID, SUBORDINATE, SUBORDINATES = 4242, 200000, 65536
NAME, HOME, RUNTIME = "gpu-user", "/var/lib/gpu-user", f"/run/user/{UID}"
PYTHON = "/usr/bin/python3"  # one below /root cannot be reached
PACKAGES = ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "toml")
LAUNCH = "import sys; sys.path.insert(0, sys.argv[1]); from gpuhook.hook import main; sys.exit(main(sys.argv[2:]))"
RUNTIMES = ("runc", "crun")


@dataclass
class User:
    """The user, and what there is for them. launcher: the hook's; image: a tar file of a Debian-like image."""

    site: Site
    launcher: str
    image: str
    _files: list[str] = field(default_factory=list)

    def run(self, *argv: str, env: Mapping[str, str] | None = None, stdin: bytes = b"", uid: int = UID) -> Result:
        """A program's outcome, as this user, without any capability."""
        whole = {"PATH": PATH, "HOME": HOME, "XDG_RUNTIME_DIR": RUNTIME, **(env or {})}
        return run(self._become(uid, *argv), env=whole, stdin=stdin, timeout=120)

    @contextmanager
    def sleeper(self) -> Iterator[int]:
        """The pid of a process of the user's in namespaces of its own, while the block runs."""
        argv = self._become(UID, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "echo ready; sleep 60")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, env={"PATH": PATH}, start_new_session=True)
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _become(self, uid: int, *argv: str) -> list[str]:
        return self.site.enter(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *argv])

    def config(self, *lines: str, owner: int = 0, mode: int = 0o644, backend: str = "embedded") -> str:
        """The path of a config.toml with these lines of [nvidia-container-cli] more."""
        head = self.site.config().partition("[gpuhook]")[0]
        path = self._new(".toml", "\n".join([head, *lines, "[gpuhook]", f'backend = "{backend}"\n']))
        os.chmod(path, mode)
        os.chown(path, owner, owner)
        return path

    def hook(self, config: str = "", log: str = "") -> dict[str, object]:
        """The hook as config.json and Podman's files have it. log: a file of the user's for all it says, notes too.

        Podman takes a note with "No such file or directory" in it for the cause of a failure.
        """
        words = ["gpuhook", "--config", config or f"{self.site.folder}/config.toml", "prestart"]
        if not log:
            return {"path": self.launcher, "args": words}
        words.insert(1, "--debug")
        return {"path": self.script(f'exec {self.launcher} "$@" 2>> {log}\n'), "args": words}

    def script(self, text: str) -> str:
        """The path of a shell script of root's that everybody can run."""
        path = self._new(".sh", f"#!/bin/sh\n{text}")
        os.chmod(path, 0o755)
        return path

    def hooks_dir(self, config: str = "", log: str = "") -> str:
        """A folder for Podman's --hooks-dir, with our hook."""
        folder = self._new(".d", None)
        entry = {"version": "1.0.0", "hook": self.hook(config, log), "when": {"always": True}, "stages": ["prestart"]}
        Path(folder, "gpu.json").write_text(json.dumps(entry))
        return folder

    def log(self) -> str:
        """The path of a new file that the user can write."""
        path = self._new(".log", "")
        os.chown(path, UID, UID)
        return path

    def tree(self, owner: int = UID) -> str:
        """A root filesystem of this host uid's, with ldconfig."""
        folder = self._new(".tree", None)
        return make_image_root(f"{folder}/rootfs", owner)

    def close(self) -> None:
        """End the machine, and before it the process with which Podman keeps the user's namespaces."""
        self.run("podman", "system", "migrate")
        self.site.close()

    def _new(self, kind: str, text: str | None) -> str:
        path = f"{self.site.folder}/file-{len(self._files)}{kind}"
        self._files.append(path)
        if text is None:
            os.mkdir(path, 0o755)
        else:
            Path(path).write_text(text)
        return path


def make_user(folder: str) -> User:
    """A user on a machine in this folder, which everybody can reach. The machine is closed by the caller."""
    site = make_site(folder)
    try:
        lines = {
            "passwd": f"{NAME}:x:{UID}:{UID}::{HOME}:/bin/sh",
            "group": f"{NAME}:x:{UID}:",
            "subuid": f"{NAME}:{SUBORDINATE}:{SUBORDINATES}",
            "subgid": f"{NAME}:{SUBORDINATE}:{SUBORDINATES}",
        }
        for name, line in lines.items():
            with open(f"{folder}/etc/{name}", "a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        for path in (HOME, RUNTIME):
            done = site.run("install", "-d", "-o", f"{UID}", "-g", f"{UID}", "-m", "700", path)
            assert done.status == 0, done.stderr
        Path(folder, "config.toml").write_text(site.config())
        return User(site, install(site), image_of(folder))
    except BaseException:
        site.close()
        raise


def install(site: Site) -> str:
    """Our package, what it imports, and its launcher, in a folder of the machine's. Returns the launcher's path."""
    said = run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"]).stdout.split()
    if said != [f"{number}" for number in sys.version_info[:2]]:
        refuse(f"needs {PYTHON} of this Python's version, for pydantic's compiled part; it is {said or 'not there'}")
    library, programs = f"{site.folder}/lib", f"{site.folder}/bin"
    os.mkdir(programs)
    shutil.copytree(f"{PROJECT}/gpuhook", f"{library}/gpuhook", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        place = Path(spec.origin)
        if place.name == "__init__.py":
            shutil.copytree(place.parent, f"{library}/{name}")
        else:
            shutil.copy(place, library)
    done = site.run(PYTHON, "-I", "-c", LAUNCH, library, "launchers", programs)
    assert done.status == 0, done.stderr
    assert run(["chmod", "-R", "a+rX", library, programs]).status == 0
    return f"{programs}/gpuhook"


def make_image_root(folder: str, owner: int = 0) -> str:
    """A Debian-like tree with the machine's ldconfig, which is a static program."""
    make_rootfs(folder, "debian")
    shutil.copy("/sbin/ldconfig", f"{folder}/usr/sbin/ldconfig")
    if owner:
        assert run(["chown", "-R", "-h", f"{owner}:{owner}", folder]).status == 0
    return folder


def image_of(folder: str) -> str:
    """Such a tree as a tar file."""
    tree = make_image_root(f"{folder}/image")
    done = run(["tar", "-C", tree, "-cf", f"{folder}/image.tar", "."])
    assert done.status == 0, done.stderr
    return f"{folder}/image.tar"


def owners(tree: str) -> dict[str, tuple[int, int]]:
    """Uid and gid on the host of everything in a tree, by its path there."""
    found = {}
    for base, folders, files in os.walk(tree):
        for name in (*folders, *files):
            status = os.lstat(f"{base}/{name}")
            found[f"{base}/{name}".removeprefix(tree)] = (status.st_uid, status.st_gid)
    return found
