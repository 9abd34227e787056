"""Extended attributes (xattr(7)): labels and access lists that a file's successor takes over."""

from __future__ import annotations

import posix

from gpuhook.note import note


def copy_attributes(source: int | str, new: int, where: str) -> None:
    """Copy what a file has to its successor, which is open, as far as filesystem and policy let us.

    Labels that only the kernel gives cannot be copied; a note says so. where: the file's name, for that.
    """
    for attribute in _attributes(source):
        _copy(source, new, attribute, where)


def _copy(source: int | str, new: int, attribute: str, where: str) -> None:
    try:
        posix.setxattr(new, attribute, posix.getxattr(source, attribute))
    except OSError as error:
        note(f"{where}: the attribute {attribute} is not kept: {error.strerror}")


def _attributes(source: int | str) -> list[str]:
    try:
        return posix.listxattr(source)
    except OSError:  # a filesystem without them
        return []
