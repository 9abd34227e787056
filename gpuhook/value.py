"""The base of every value that passes between rooms: built once, never changed, comparable, printable.

It does what a frozen dataclass does and costs nothing to import; `dataclasses` would add 20 ms to a container start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    from typing_extensions import Self, dataclass_transform

    _Class = TypeVar("_Class")
else:

    def dataclass_transform(**_options: object) -> Callable[[_Class], _Class]:
        """Type checkers read this marker (PEP 681); at run time it does nothing."""
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value:
    """A record whose fields are its class's annotations and whose defaults are its class attributes.

    >>> class Point(Value):
    ...     x: int
    ...     y: int = 0
    >>> Point(x=1)
    Point(x=1, y=0)

    Two values are equal when they are of one class and all their fields are equal.
    Raises TypeError for a field that is unknown or missing, AttributeError on assignment.
    """

    if not TYPE_CHECKING:

        def __init__(self, **fields: object) -> None:
            self.__dict__.update(fields)
            for name in self._fields:
                if name not in fields and not hasattr(self, name):
                    raise TypeError(f"{type(self).__name__} lacks the field {name}")
            if len(self._fields) < len(fields) or not all(name in self._fields for name in fields):
                unknown = ", ".join(name for name in fields if name not in self._fields)
                raise TypeError(f"{type(self).__name__} has no field {unknown}")

        def __setattr__(self, name: str, _value: object) -> NoReturn:
            raise AttributeError(f"{type(self).__name__}.{name} cannot be changed: values never are")

        _fields: tuple[str, ...] = ()

        def __init_subclass__(cls) -> None:
            cls._fields = (*cls._fields, *cls.__annotations__)

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of the fields, in the order of their definition."""
        return cls._fields  # type: ignore[attr-defined,no-any-return]  # hidden from the checker, set above

    def with_(self, **changes: object) -> Self:
        """A copy of this value with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self.fields()}, **changes})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self.fields())

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.fields())))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields())
        return f"{type(self).__name__}({inside})"
