"""A field of a definition that holds several values, and takes a single one by itself: `key="user"`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Several(Generic[T]):
    """A field of a frozen dataclass that holds a tuple, empty where nothing is given.

    It is a descriptor, so that type checkers know both types: a definition may be given one value or several, and has a
    tuple.

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
        # Dataclasses read a field's default from the class.
        return () if instance is None else instance.__dict__[self._name]

    def __set__(self, instance: Any, value: T | Iterable[T]) -> None:
        some: Iterable[Any] = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
        instance.__dict__[self._name] = tuple(some)
