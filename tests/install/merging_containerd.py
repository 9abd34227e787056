#!/usr/bin/env python3
"""Answers like a containerd that merges imported files key by key, as releases since 2.0 do; for machines without one.

merging_containerd.py --version
merging_containerd.py --config FILE config dump
"""

from __future__ import annotations

import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from gpuhook.install.tomledit import Raw, Table, Toml, block, merged, written

BUILT_IN = (
    '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
)


def main(words: list[str]) -> int:
    """Print what is asked for."""
    if words == ["--version"]:
        sys.stdout.write("containerd github.com/containerd/containerd/v2 v2.1.0 abcdef\n")
        return 0
    config = words[words.index("--config") + 1]
    with open(config, encoding="utf-8") as file:
        table = Toml(file.read()).table
    imports = table.get("imports", [])
    for pattern in imports if isinstance(imports, list) else []:
        for path in sorted(glob.glob(str(pattern))):
            with open(path, encoding="utf-8") as file:
                table = merged(table, Toml(file.read()).table)
    show({**merged(Toml(BUILT_IN).table, table), "version": Raw(text="3")})
    return 0


def show(table: Table) -> None:
    """Print a table as TOML."""
    for name, value in table.items():
        if not isinstance(value, dict):
            sys.stdout.write(f"{name} = {written(value)}\n")
    for name, value in table.items():
        if isinstance(value, dict):
            sys.stdout.writelines(f"{line}\n" for line in block((name,), value))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
