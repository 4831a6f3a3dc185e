"""The shape of a log's records at their source: which place of a record holds a column's value, and in which form.

A place is a path of names from the record's outermost object, such as `user.country`. A name with a dot, a blank or any
other character is written in backquotes: ``user.`home country` ``. The fields of a struct are placed in the same way,
relative to their struct. So a column may have any name in the source, although the names in tables are short and plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tailrace.model.base.types import element_type, map_value, struct_fields

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Plain:
    """A value that is not a container: its declared type and, for an instant, its form (`Log.instants`).

    Without a form, an instant is a text in ISO 8601. The form is a unit of whole numbers, or a format of `strptime`.
    """

    type: str
    form: str | None = None


@dataclass(frozen=True)
class Listed:
    """A list; all elements have one shape."""

    element: Shape


@dataclass(frozen=True)
class Mapped:
    """A map from texts to values; all values have one shape."""

    value: Shape


@dataclass(frozen=True)
class Struct:
    """An object with named fields."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Field:
    """A column of a log, or a field of a struct: its name in tables, its place in the source, and its shape."""

    name: str
    place: Path
    shape: Shape


Shape: TypeAlias = "Plain | Listed | Mapped | Struct"

_STEP = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


def place_of(text: object) -> Path | None:
    """Parse a place; return None if the text is not a place.

    >>> place_of("user.country"), place_of("`a.b`.c"), place_of("user..country")
    (('user', 'country'), ('a.b', 'c'), None)
    """
    if not isinstance(text, str) or not re.fullmatch(rf"(?:{_STEP.pattern})(?:\.(?:{_STEP.pattern}))*", text):
        return None
    return tuple(step[1:-1].replace("``", "`") if step.startswith("`") else step for step in _STEP.findall(text))


def shape_of(
    type: str, places: Mapping[str, str], forms: Mapping[str, str], default: str | None = None, path: str = ""
) -> Shape:
    """Return the shape of values of a declared type.

    `places` and `forms` map dotted paths of fields, such as `items.price`, to places and to forms of instants. `path`
    is the path of the value itself. `default` is the form of instants for which `forms` has no entry.
    """
    if (element := element_type(type)) is not None:
        return Listed(shape_of(element, places, forms, default, path))
    if (value := map_value(type)) is not None:
        return Mapped(shape_of(value, places, forms, default, path))
    if (fields := struct_fields(type)) is not None:
        return Struct(fields_of(fields, places, forms, default, f"{path}."))
    form = forms.get(path, default if type == "timestamp" else None)
    return Plain(type, form)


def fields_of(
    types: Mapping[str, str], places: Mapping[str, str], forms: Mapping[str, str], default: str | None = None,
    prefix: str = "",
) -> tuple[Field, ...]:  # fmt: skip
    """Return the fields of a record or a struct, from the fields' declared types.

    >>> fields_of({"id": "bigint"}, {"id": "order.id"}, {})
    (Field(name='id', place=('order', 'id'), shape=Plain(type='bigint', form=None)),)
    """
    made = []
    for name, type in types.items():
        path = prefix + name
        place = place_of(places[path]) if path in places else None
        made.append(Field(name, place or (name,), shape_of(type, places, forms, default, path)))
    return tuple(made)


def paths_of(types: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the declared type of each column and of each field inside columns.

    >>> list(paths_of({"items": "array<struct<price:double>>"}))
    [('items', 'array<struct<price:double>>'), ('items.price', 'double')]
    """
    for name, type in types.items():
        yield prefix + name, type
        inner: str | None = type
        while (deeper := element_type(inner or "") or map_value(inner or "")) is not None:
            inner = deeper
        if (fields := struct_fields(inner or "")) is not None:
            yield from paths_of(fields, f"{prefix}{name}.")
