"""A field type for definitions: the field stores several values but also accepts a single value, as in `key="user"`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Several(Generic[T]):
    """A field of a frozen dataclass whose value is always a tuple; the default is an empty tuple.

    `Several` is a descriptor, so that type checkers know two types: the type of the argument, which is one value or
    several values, and the type of the attribute, which is a tuple.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Grouped:
    ...     key: Several[str] = Several()
    >>> Grouped("user").key, Grouped(["user", "page"]).key, Grouped().key
    (('user',), ('user', 'page'), ())
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> tuple[T, ...]:
        # If there is no instance, return the empty tuple: `dataclass` reads the default of a field from the class.
        return () if instance is None else instance.__dict__[self._name]

    def __set__(self, instance: Any, value: T | Iterable[T]) -> None:
        some: Iterable[Any] = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
        instance.__dict__[self._name] = tuple(some)
