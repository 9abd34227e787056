"""Hook cases that nobody recorded: parts of recorded ones and hostile strings, put together by a seed.

What the reference would do with one is worked out by tests/replay_rules/reference.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.replay_rules import reference
from tests.replay_rules.case import Case
from tests.replay_rules.document import texts
from tests.replay_rules.view import look_at

Members = dict[str, Any]
LONGEST = 200  # characters of an entry
FOLDER = "/var/run/nvidia-container-devices"
ENTRIES = (
    "NVIDIA_VISIBLE_DEVICES=0,\u2028",
    f"NVIDIA_VISIBLE_DEVICES={FOLDER}",
    "NVIDIA_VISIBLE_DEVICES=0 -x",
    "NVIDIA_VISIBLE_DEVICES=a -b,all",
    "NVIDIA_IMEX_CHANNELS=-1",
    "NVIDIA_MIG_CONFIG_DEVICES=-x",
    "NVIDIA_MIG_CONFIG_DEVICES=0\t",
    "NVIDIA_REQUIRE_X=\u202ea",
    "NVIDIA_DRIVER_CAPABILITIES=compute,-x",
    "NVIDIA_DISABLE_REQUIRE=Yes ",
    "RES_A=0,0",
    "RES_B=void",
)
NAMES = (
    *("all", "none", "void", "0", "0,1", "x\ty", "-x", "a b", "a/b=c", "..", "0/..", "none/", "cdi/a.b/c=d", "cdi/x"),
    *("imex/0", "imex/all", "imex/0,1", "imex/ 1", "imex/-1", "imex/a\nb", "imex/"),
)
PLACES = (f"{FOLDER}/", "/run/nvidia-container-devices/", f"{FOLDER}-", f"{FOLDER}//./")
TOP_KEYS = (
    "disable-require = true",
    "disable-require = 1",
    'swarm-resource = "RES_A,RES_B"',
    "accept-nvidia-visible-devices-envvar-when-unprivileged = false",
    "accept-nvidia-visible-devices-as-volume-mounts = true",
    'supported-driver-capabilities = "compute,utility"',
    'supported-driver-capabilities = "x"',
    "unknown = 2020-01-01",
    "DISABLE-REQUIRE = true",
    "features.ignore-imex-channel-requests = true",
    "features.allow-ldconfig-from-container = true",
    "features.allow-cuda-compat-libs-from-container = true",
    "nvidia-ctk.path = 1",
)
CLI_KEYS = (
    'root = "{dir}/drv"',
    "load-kmods = false",
    "no-cgroups = true",
    'debug = "/proc/d"',
    r'debug = "/proc/d\n"',
    'ldconfig = "@/opt/x"',
    'ldconfig = "/opt/x"',
    'ldconfig = "x"',
    'ldconfig = "@{dir}/ldconfig"',
    'environment = ["A=1", "PATH=/p", "LD_LIBRARY_PATH=/q"]',
    'environment = ["A=2", "A=1"]',
    'environment = ["A"]',
)
RUNTIME_KEYS = (
    'mode = "cdi"',
    'mode = "jit-cdi"',
    'mode = "x"',
    'modes.legacy.cuda-compat-mode = "mount"',
    'modes.legacy.cuda-compat-mode = ""',
    'log-level = "DEBUG"',
)
VARIABLES = (
    {"PATH": "{path}", "A": "1"},
    {"PATH": "{dir}/bin:/usr/bin", "LD_PRELOAD": "", "A": "0"},
    {"PATH": "{dir}/bin", "TMPDIR": "/x", "NVC_DEBUG_FILE": "y"},
    {"PATH": "/usr/bin", "OPENSSL_CONF": "/x", "LD_LIBRARY_PATH": "/z"},
)
CALLS = (
    ["prestart", "-config", "{config}"],
    ["-config", "{config}", "prestart", "-debug"],
    ["-config", "{config}", "prestart", "-x"],
    ["-config", "{config}", "createRuntime"],
    ["-config", "{config}", "createContainer"],
    ["-config", "{config}", "poststop", "-x"],
)


@dataclass(frozen=True)
class Parts:
    """What recorded cases are made of: entries of process.env, mounts, capabilities."""

    entries: list[str]
    mounts: list[Members]
    capabilities: list[Any]


def parts(cases: list[Case]) -> Parts:
    """The parts of those cases that a runtime could have written."""
    specs = [case.members["config_json"] for case in cases if isinstance(case.members.get("config_json"), dict)]
    usable = [spec for spec in specs if isinstance(spec.get("process"), dict)]
    entries = [entry for spec in usable for entry in texts(spec["process"].get("env")) if len(entry) < LONGEST]
    lists = [spec["mounts"] for spec in usable if isinstance(spec.get("mounts"), list)]
    mounts = [mount for found in lists for mount in found if isinstance(mount, dict)]
    return Parts(entries, mounts, [spec["process"].get("capabilities") for spec in usable])


def mixture(seed: int, found: Parts) -> Case:
    """The case of a seed, with what the reference does as its expectation."""
    random = Random(seed)
    members: Members = {
        "name": f"mixture {seed}",
        "tags": ["mixture"],
        "args": random.choice(CALLS) if random.random() < 0.1 else ["-config", "{config}", "prestart"],
        "env_of_hook": random.choice(VARIABLES),
        "config_toml": _config(random),
        "state": {
            "pid": random.choice([7] * 20 + [0]),
            "bundle": random.choice(["{bundle}"] * 20 + ["{dir}/link", "x"]),
        },
        "config_json": _spec(random, found),
        "files": _files(random),
    }
    did = reference.outcome(look_at(Case(members)))
    expect = {"exit": did.exit, "exec": did.argv is not None, "argv": did.argv, "extra_env": did.env}
    return Case({**members, "expect": expect})


def _config(random: Random) -> str:
    path = ['path = "{cli}"'] if random.random() < 0.8 else []
    skip = random.choice(["true", "false"])
    tables = {
        "nvidia-container-cli": [*path, *_some(random, CLI_KEYS)],
        "nvidia-container-runtime": _some(random, RUNTIME_KEYS),
        "nvidia-container-runtime-hook": [f"skip-mode-detection = {skip}"],
    }
    blocks = ["\n".join([f"[{name}]", *lines]) for name, lines in tables.items()]
    return "\n".join([*_some(random, TOP_KEYS), *blocks, ""])


def _some(random: Random, lines: tuple[str, ...]) -> list[str]:
    """None to two of the lines, no key twice."""
    chosen = random.sample(lines, random.choice([0, 0, 0, 1, 2]))
    return list({line.partition(" ")[0].lower(): line for line in chosen}.values())


def _spec(random: Random, found: Parts) -> Members:
    first = random.choice(["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0,1", "A=b"])
    more = [
        random.choice(ENTRIES if random.random() < 0.2 else found.entries) for _ in range(random.choice([0, 1, 2]))
    ]
    mounts = [_mount(random, found) for _ in range(random.choice([0, 0, 1, 2]))]
    capabilities = random.choice(found.capabilities) if random.random() < 0.3 else None
    return {
        "ociVersion": random.choice(["1.0.2"] * 9 + ["1.0.0-rc3"]),
        "process": {"env": [first, *more], "capabilities": capabilities},
        "root": {"path": random.choice(["{rootfs}"] * 12 + ["rootfs", "/", "", "../x", "/a\tb", "x//y/"])},
        "mounts": mounts,
    }


def _mount(random: Random, found: Parts) -> Members:
    if random.random() < 0.5:
        return random.choice(found.mounts)
    source = random.choice(["/dev/null"] * 6 + ["/dev//null"])
    return {"destination": random.choice(PLACES) + random.choice(NAMES), "source": source}


def _files(random: Random) -> list[Members]:
    choices: list[Members] = [
        {"path": "{dir}/ldconfig", "text": "x"},
        {"path": "{dir}/ldconfig.real", "text": "x"},
        {"path": "{dir}/ldconfig.real", "dir": True},
        {"path": "{dir}/drv/usr/bin/nvidia-container-cli", "stub": True},
    ]
    return [{"path": "{dir}/link", "link": "bundle"}, *random.sample(choices, random.choice([0, 1, 2]))]
