"""The shape of a log's records at their source: which place of a record holds a column's value, and in which form.

A place is a path of names from the record's outermost object, such as `user.country`. A name with a dot, a blank or any
other character is written in backquotes: ``user.`home country` ``. The fields of a struct are placed in the same way,
relative to their struct. So a column may have any name in the source, although the names in tables are short and plain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tailrace.model.base.types import element_type, innermost_type, map_value, struct_fields, struct_type

Path: TypeAlias = tuple[str, ...]

AS_TEXT = "text"
"""The form of a decimal that may be written as a text."""


@dataclass(frozen=True)
class Plain:
    """A value that is not a container: its declared type and, for an instant, its form (`Log.instants`).

    Without a form, an instant is a text in ISO 8601. The form is a unit of whole numbers, or a format of `strptime`.
    A decimal is a number without a form, and a number or a text with the form `AS_TEXT`. `rounding` is the way to
    round a decimal with too many digits after the point; without it, such a number does not fit.
    """

    type: str
    form: str | None = None
    rounding: str | None = None


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
    """An object with named fields; `rest` names the field that keeps all undeclared members of the object."""

    fields: tuple[Field, ...]
    rest: str | None = None


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


Forms: TypeAlias = Callable[[str, str], "str | None"]
"""A function from the path of a field, such as `items.price`, and its declared type to the form of its values."""


def no_forms(path: str, type: str) -> str | None:
    """Return the usual form of all values: None."""


def shape_of(
    type: str, places: Mapping[str, str], forms: Forms = no_forms, path: str = "", rounding: Forms = no_forms
) -> Shape:
    """Return the shape of values of a declared type, whose path is `path`; `places` maps paths of fields to places."""
    if (element := element_type(type)) is not None:
        return Listed(shape_of(element, places, forms, path, rounding))
    if (value := map_value(type)) is not None:
        return Mapped(shape_of(value, places, forms, path, rounding))
    if (fields := struct_fields(type)) is not None:
        return Struct(fields_of(fields, places, forms, f"{path}.", rounding))
    return Plain(type, forms(path, type), rounding(path, type))


def fields_of(
    types: Mapping[str, str],
    places: Mapping[str, str],
    forms: Forms = no_forms,
    prefix: str = "",
    rounding: Forms = no_forms,
) -> tuple[Field, ...]:
    """Return the fields of a record or a struct, from the fields' declared types.

    >>> fields_of({"id": "bigint"}, {"id": "order.id"})
    (Field(name='id', place=('order', 'id'), shape=Plain(type='bigint', form=None, rounding=None)),)
    """
    made = []
    for name, type in types.items():
        path = prefix + name
        place = place_of(places[path]) if path in places else None
        made.append(Field(name, place or (name,), shape_of(type, places, forms, path, rounding)))
    return tuple(made)


def may_round(field: Field) -> bool:
    """Return True if decimals in the values of a field are rounded."""
    shape: Shape = field.shape
    while isinstance(shape, Listed | Mapped):
        shape = shape.element if isinstance(shape, Listed) else shape.value
    return any(map(may_round, shape.fields)) if isinstance(shape, Struct) else shape.rounding is not None


def type_of(shape: Shape) -> str:
    """Return the declared type of values of a shape.

    >>> type_of(Listed(Struct((Field("price", ("price",), Plain("double")),), rest="more")))
    'array<struct<price:double,more:json>>'
    """
    if isinstance(shape, Plain):
        return shape.type
    if isinstance(shape, Listed):
        return f"array<{type_of(shape.element)}>"
    if isinstance(shape, Mapped):
        return f"map<string,{type_of(shape.value)}>"
    fields = {one.name: type_of(one.shape) for one in shape.fields}
    return struct_type(fields if shape.rest is None else {**fields, shape.rest: "json"})


def paths_of(types: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the declared type of each column and of each field inside columns.

    >>> list(paths_of({"items": "array<struct<price:double>>"}))
    [('items', 'array<struct<price:double>>'), ('items.price', 'double')]
    """
    for name, type in types.items():
        yield prefix + name, type
        if (fields := struct_fields(innermost_type(type))) is not None:
            yield from paths_of(fields, f"{prefix}{name}.")
