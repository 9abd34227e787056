"""What config.toml decides: its text in, `Settings` out, or a refusal that names file, line, key, value and remedy.

A key that nobody knows is a warning, as files are shared between releases; a value that cannot be meant is refused.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from gpuhook.errors import ConfigBroken
from gpuhook.settings.grammar import Path, dotted
from gpuhook.settings.model import ConfigFile, Refused, words
from gpuhook.settings.reader import Document, read_toml
from gpuhook.settings.values import CAPABILITIES, Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_WARNINGS = 20
LDCONFIG = ("nvidia-container-cli", "ldconfig")


def decide(data: bytes, path: str) -> Settings:
    """The settings that the content of the file `path` makes.

    Raises ConfigBroken. Warnings about the file are in the settings, as (slug, text).
    """
    file = _File(read_toml(data, path), path)
    try:
        config = ConfigFile.model_validate(file.table)
    except ValidationError as fault:
        raise _refusal(file, fault) from None
    return _settings(file, config)


class _File:
    """The file's table with its keys as the schema spells them, and where each of them stands."""

    def __init__(self, document: Document, path: str) -> None:
        self.document, self.path = document, path
        self.spelled: dict[Path, Path] = {}
        self.unknown: list[Path] = []
        self.table = self._known(document.table, ConfigFile, (), ())

    def _known(self, table: dict[str, object], model: type[BaseModel], path: Path, found: Path) -> dict[str, object]:
        known: dict[str, object] = {}
        models = tables_of(model)
        for name, value in table.items():
            # A key that is written in upper case from end to end is accepted too (hook.md 2).
            key = name.lower() if name == name.upper() and name.lower() not in table else name
            here, there = (*path, key), (*found, name)
            if key not in models:
                self.unknown.append(there)
                continue
            self.spelled[here] = there
            inner = models[key]
            known[key] = self._known(value, inner, here, there) if inner and isinstance(value, dict) else value
        return known

    def where(self, key: Path) -> str:
        """File and line of a key of the schema, or of an element of its list."""
        return f"{self.path}:{self.line(key)}"

    def line(self, key: Path) -> int:
        """The line of a key of the schema, or of an element of its list."""
        rest: Path = ()
        while key and key not in self.spelled:
            key, rest = key[:-1], (key[-1], *rest)
        return self.document.line(*self.spelled.get(key, ()), *rest)

    def unknown_keys(self) -> list[tuple[str, str]]:
        """A warning for each key that has no effect; only some of them where somebody put a different file there."""
        return [
            (
                ConfigBroken.reference,
                f"{self.path}:{self.document.line(*key)}: {dotted(key)} is unknown and has no effect{_nearest(key)}",
            )
            for key in self.unknown[:MOST_WARNINGS]
        ]


def tables_of(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """The keys of a table, as the file spells them, and the model of each one that is a table itself."""
    return {
        field.alias or name: field.annotation
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        else None
        for name, field in model.model_fields.items()
    }


def known_keys(model: type[BaseModel] = ConfigFile, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key and table of config.toml, with the tables that it is in."""
    found = []
    for name, inner in tables_of(model).items():
        found.append((*above, name))
        if inner:
            found.extend(known_keys(inner, (*above, name)))
    return found


def _nearest(key: Path) -> str:
    word = str(key[-1]).lower().replace("_", "-")
    keys = sorted(known_keys(), key=lambda known: known[:-1] != key[:-1])
    match = get_close_matches(word, [known[-1] for known in keys], n=1, cutoff=0.75)
    nearest = next((known for known in keys if match and known[-1] == match[0]), None)
    return f"; did you mean {dotted(nearest)}?" if nearest else ""


# Refusals

NEEDED = {
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "list_type": "a list",
    "model_type": "a table",
}


def _refusal(file: _File, fault: ValidationError) -> ConfigBroken:
    faults = sorted(fault.errors(include_url=False), key=lambda one: file.line(one["loc"]))
    key, needed, element, choices = _reading(faults[0])
    found = f'has the element "{element}"' if element else f"is {_described(faults[0]['input'])}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    near = get_close_matches((element or str(faults[0]["input"])).lower(), choices, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return ConfigBroken(
        f"{file.where(key)}: {dotted(key)} {found} and must be {needed}{more}",
        where=file.where(key),
        hint=f"{hint}Correct line {file.line(key)}, or remove it to get the default",
    )


def _reading(fault: ErrorDetails) -> tuple[Path, str, str, tuple[str, ...]]:
    """Of one of pydantic's errors: the key, what it must be, the element at fault, and the words to choose from."""
    context = fault.get("ctx", {})
    refused = context.get("error")
    if isinstance(refused, Refused):
        return fault["loc"], refused.needed, refused.found, refused.words
    if fault["type"] == "literal_error":
        choices = context["expected"]
        return fault["loc"], f"one of {choices}", "", tuple(choices.replace(" or ", ", ").replace("'", "").split(", "))
    return fault["loc"], NEEDED.get(fault["type"], fault["msg"]), "", ()


def _described(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value[:80]}"'
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"the date {value}"


# From the file's keys to the settings

KEYS = {
    "disable_require": "disable-require",
    "swarm_resource": "swarm-resource",
    "accept_envvar_when_unprivileged": "accept-nvidia-visible-devices-envvar-when-unprivileged",
    "accept_volume_mounts": "accept-nvidia-visible-devices-as-volume-mounts",
    "supported_driver_capabilities": "supported-driver-capabilities",
    "cli_root": "nvidia-container-cli.root",
    "cli_path": "nvidia-container-cli.path",
    "cli_environment": "nvidia-container-cli.environment",
    "cli_debug": "nvidia-container-cli.debug",
    "cli_ldcache": "nvidia-container-cli.ldcache",
    "load_kmods": "nvidia-container-cli.load-kmods",
    "no_pivot": "nvidia-container-cli.no-pivot",
    "no_cgroups": "nvidia-container-cli.no-cgroups",
    "cli_user": "nvidia-container-cli.user",
    "ldconfig": "nvidia-container-cli.ldconfig",
    "runtime_debug": "nvidia-container-runtime.debug",
    "runtime_log_level": "nvidia-container-runtime.log-level",
    "runtimes": "nvidia-container-runtime.runtimes",
    "mode": "nvidia-container-runtime.mode",
    "csv_mount_spec_path": "nvidia-container-runtime.modes.csv.mount-spec-path",
    "csv_compat_container_root": "nvidia-container-runtime.modes.csv.compat-container-root",
    "cdi_spec_dirs": "nvidia-container-runtime.modes.cdi.spec-dirs",
    "cdi_default_kind": "nvidia-container-runtime.modes.cdi.default-kind",
    "cdi_annotation_prefixes": "nvidia-container-runtime.modes.cdi.annotation-prefixes",
    "jit_cdi_nvcdi_feature_flags": "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags",
    "jit_cdi_nvcdi_disable_hooks": "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks",
    "cuda_compat_mode": "nvidia-container-runtime.modes.legacy.cuda-compat-mode",
    "hook_path": "nvidia-container-runtime-hook.path",
    "skip_mode_detection": "nvidia-container-runtime-hook.skip-mode-detection",
    "ctk_path": "nvidia-ctk.path",
    "allow_cuda_compat_libs_from_container": "features.allow-cuda-compat-libs-from-container",
    "allow_ldconfig_from_container": "features.allow-ldconfig-from-container",
    "allow_unknown_oci_spec_fields": "features.allow-unknown-oci-spec-fields",
    "disable_cuda_compat_lib_hook": "features.disable-cuda-compat-lib-hook",
    "disable_imex_channel_creation": "features.disable-imex-channel-creation",
    "ignore_imex_channel_requests": "features.ignore-imex-channel-requests",
    "no_additional_gids_for_device_nodes": "features.no-additional-gids-for-device-nodes",
    "backend": "gpuhook.backend",
    "write_into_volumes": "gpuhook.write-into-volumes",
    "failure_log": "gpuhook.failure-log",
}


def _settings(file: _File, config: ConfigFile) -> Settings:
    table = config.model_dump(by_alias=True)
    values: dict[str, Any] = {name: _at(table, key) for name, key in KEYS.items()}
    supported = words(config.supported_driver_capabilities)
    ldconfig, unsafe = _ldconfig(file, config)
    return Settings(**values).with_(
        source=file.path,
        warnings=(*file.unknown_keys(), *unsafe),
        ldconfig=ldconfig,
        swarm_resource=words(config.swarm_resource),
        supported_driver_capabilities=tuple(word for word in CAPABILITIES if word in supported or "all" in supported),
    )


def _at(table: Any, key: str) -> object:
    for part in key.split("."):
        table = table[part]
    return tuple(table) if isinstance(table, list) else table


def _ldconfig(file: _File, config: ConfigFile) -> tuple[str | None, list[tuple[str, str]]]:
    """The host's ldconfig with @ in front, or the container's where a feature allows it (decisions.md 6)."""
    found = config.nvidia_container_cli.ldconfig
    if found is None or found.startswith("@") or config.features.allow_ldconfig_from_container:
        return found, []
    where = file.where(LDCONFIG)
    if not found.startswith("/"):
        raise ConfigBroken(
            f'{where}: {dotted(LDCONFIG)} is "{found}" and must be @ and the path of a program of the host',
            where=where,
            hint='write ldconfig = "@/sbin/ldconfig", or remove the line',
        )
    text = f'{where}: {dotted(LDCONFIG)} = "{found}" would run a program of the image; the host\'s is used'
    return f"@{found}", [("unsafe-config", f'{text}. Write "@{found}"')]
