"""What tells this machine's libraries from others: ELF numbers, flags of the loader's cache, multiarch names."""

from __future__ import annotations

import posix

from gpuhook.refusals import NotCovered
from gpuhook.value import Value

_ELF, _ARCHITECTURE = 1, 0xFF00  # bits of a cache entry's flags


class Machine(Value):
    """A kind of machine. elf, flags, triplets: for 64 bits, then for 32 bits (-1 or "" where there are none)."""

    name: str
    elf: tuple[int, int]
    flags: tuple[int, int]
    triplets: tuple[str, str]

    def bits(self, flags: int) -> int:
        """64 or 32 for a cache entry of this machine by its flags, 0 for any other entry (engine.md 2.5)."""
        if not flags & _ELF:
            return 0
        architecture = flags & _ARCHITECTURE
        return 64 if architecture == self.flags[0] else 32 if architecture == self.flags[1] else 0

    def runs(self, elf_machine: int, bits: int) -> bool:
        """Whether code of this ELF machine number and size is this machine's."""
        return elf_machine == self.elf[0 if bits == 64 else 1]


MACHINES = (
    Machine(name="x86_64", elf=(62, 3), flags=(0x0300, 0x0000), triplets=("x86_64-linux-gnu", "i386-linux-gnu")),
    Machine(
        name="aarch64", elf=(183, 40), flags=(0x0A00, 0x0900), triplets=("aarch64-linux-gnu", "arm-linux-gnueabihf")
    ),
    Machine(name="ppc64le", elf=(21, -1), flags=(0x0500, -1), triplets=("powerpc64le-linux-gnu", "")),
)


def this_machine() -> Machine:
    """The machine that we run on. Raises NotCovered where no NVIDIA driver exists for it."""
    name = posix.uname().machine
    for machine in MACHINES:
        if machine.name == name:
            return machine
    raise NotCovered(f"no NVIDIA driver is known for machines of kind {name}")
