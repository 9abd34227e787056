"""The launcher of `gpuhook-runtime`: a shell script that starts Python only where Python is needed.

An engine calls its runtime many times for each container, and once with `create`. For everything else the script
becomes the low-level runtime that was found last (runtime/kept.py), which costs what starting a small shell costs.
A word `create` or `run` anywhere, as a container's name too, only means that Python looks closer.
"""

from __future__ import annotations

from shlex import quote

from gpuhook.settings.values import DEFAULT_CONFIG

FOLDER = "/run/gpuhook"
TEMPLATE = """\
#!/bin/sh
# gpuhook launcher: written by `gpuhook launchers`; write it anew when gpuhook or Python moves.
config={config} folder={folder} look= runtime= path=
for word do
    case $word in create | run | -v* | -V* | --v*) look=1 ;; esac
done
# Whoever does not own / is no root: then it is the user's own folder.
[ -O / ] || folder=${{XDG_RUNTIME_DIR-}}/gpuhook
if [ -e "$config" ]; then
    kept=$folder/runtime
    if [ "$config" -nt "$kept" ] || [ "$config" -ot "$kept" ]; then look=1; fi
else
    kept=$folder/runtime-without-config
fi
if [ -z "$look${{NVIDIA_CTK_CONFIG_FILE_PATH-}}${{XDG_CONFIG_HOME-}}" ] && [ ${{#GPUHOOK_RUNTIME_DEPTH}} -lt 8 ] &&
    [ -O "$folder" ] && [ ! -L "$folder" ] && [ -O "$kept" ] && [ ! -L "$kept" ] && [ -f "$kept" ] &&
    {{ IFS= read -r runtime && IFS= read -r path; }} <"$kept" && [ "$path" = "${{PATH-}}" ] && [ -x "$runtime" ]
then
    GPUHOOK_RUNTIME_DEPTH=${{GPUHOOK_RUNTIME_DEPTH-}}x
    export GPUHOOK_RUNTIME_DEPTH
    exec "$runtime" "$@"
fi
exec {interpreter} -I -S -c {code} "$0" "$@"
"""
# What a start runs must be root's or ours alone (threats.md AC-74); 65534 is root as a user namespace shows it.
GUARD = """\
for place in {package!r}, {package!r} + "/__pycache__", {archives!r} + "start":
    try:
        status = stat(place)
    except OSError:
        continue
    if status.st_mode & 0o022 or status.st_uid not in (0, geteuid(), 65534):
        sys.exit(f"gpuhook: unsafe-config: {{place}} could have been written by others: its code is not run")
"""
# How every launcher of ours starts: our modules from the archive, if it is there and the folders are safe.
START = """\
import sys
from marshal import loads
from posix import geteuid, stat

{guard}
sys.dont_write_bytecode = True
sys.path += {folders!r}
try:
    with open({archives!r} + "start", "rb") as file:
        code, modules = loads(file.read())
except (OSError, ValueError, EOFError, TypeError):
    pass
else:
    preload = type(sys)("gpuhook.preload")
    sys.modules["gpuhook.preload"] = preload
    exec(code, preload.__dict__)
    preload.archives = {archives!r}
    for module in modules:
        preload.place(*module)
"""
CODE = (
    "\n"
    + START
    + """\
    preload.stage("runtime")
from gpuhook.runtime.entry import launch

launch(sys.argv.pop(1))
"""
)


def guard(archives: str) -> str:
    """The lines by which a launcher refuses code that others could have written. archives: as in runtime_text."""
    return GUARD.format(package=archives.rpartition("/__pycache__/")[0], archives=archives)


def runtime_text(
    interpreter: str, folders: list[str], archives: str, *, config: str = DEFAULT_CONFIG, folder: str = FOLDER
) -> str:
    """The launcher's text.

    interpreter: absolute; folders: where gpuhook, pydantic and toml are found; archives: their path without the
    stage; config and folder: in place of the usual config.toml and folder of root's snapshots.
    """
    return TEMPLATE.format(
        config=quote(config),
        folder=quote(folder),
        interpreter=quote(interpreter),
        code=quote(CODE.format(folders=folders, archives=archives, guard=guard(archives))),
    )
