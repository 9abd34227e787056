"""What the doctor cannot see from a node, and what it sees of a cause only in part."""

from __future__ import annotations

UNDETECTABLE = {
    "gpus-quoting": (
        "the docker command itself refuses the command line, so nothing of it reaches the node; its message "
        "(`cannot set both Count and DeviceIDs on device request`) names the cause, and `gpuhook why` the way out"
    ),
}
# Implemented, for what a node or a container shows; the rest of the cause is elsewhere.
PARTLY = {
    "build-no-gpu": "noted where a default runtime suggests that builds are to have a GPU; builds themselves are "
    "gone by then",
    "compose-syntax": "the version of docker-compose; compose files are not searched for",
    "nvidia-docker-cmd": "use of NV_GPU or nvidia-docker in the shells' start-up files; scripts are not searched for",
    "ldconfig-failed": "a loader configuration of the image that cannot be read; what ldconfig says at a start is in "
    "the hook's message",
    "caps-graphics": "whether a program wants it is guessed from the image's libraries, where they can be read",
    "caps-video": "whether a program wants it is guessed from the image's programs, where they can be read",
    "hook-error-hidden": "containers that Podman runs with crun; a bundle does not name its runtime",
    "requirement-cuda": "by a table of CUDA versions until the driver itself is asked, at a start and by explain",
    "upgrade-regression": "only with another finding, from the logs of dpkg, dnf, pacman and zypper",
    "uvm-after-suspend": "that the host slept since the module was loaded, not that CUDA fails",
    "boot-order": "that nothing makes the device nodes at boot, not the order in which units really started",
    "privileged-sees-all": "a GPU scheduler outside of the engine (Slurm) cannot be seen",
    "unsafe-config": "advisories that were known when this gpuhook was released",
}
