"""Write Arrow values as JSON texts: for rejected rows, for columns of type `json`, and for undeclared columns.

Numbers and instants keep all of their digits. Bytes, and texts that are not valid UTF-8, are written in base64. A field
without a value is left out of its object.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY
from tailrace.model.logs.json_records import shown_day, shown_instant


def json_texts(values: pa.Array) -> pa.StringArray:
    """Return the JSON text of each value; a null stays null.

    >>> json_texts(pa.array([{"a": [1.5, None], "b": 'x"'}, {"a": []}, None])).to_pylist()
    ['{"a":[1.5,null],"b":"x\\\\""}', '{"a":[]}', None]
    """
    type = values.type
    if isinstance(type, pa.BaseExtensionType):
        return json_texts(values.storage)
    if pa.types.is_dictionary(type):
        return json_texts(values.dictionary).take(values.indices)
    if pa.types.is_null(type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_struct(type):
        fields = dict(zip((field.name for field in type), values.flatten(), strict=True))
        return pc.if_else(values.is_valid(), json_objects(fields, len(values)), pa.scalar(None, pa.string()))
    if is_listed(type):
        return _lists(values)
    if pa.types.is_boolean(type) or pa.types.is_integer(type) or pa.types.is_decimal(type):
        return values.cast(pa.string())
    if pa.types.is_floating(type):
        return _floats(values)
    if pa.types.is_timestamp(type):
        return _instants(values)
    if pa.types.is_date(type):
        return _dates(values)
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return _quoted(values.cast(pa.string()))
    return _one_by_one(values)


def json_objects(fields: Mapping[str, pa.Array], rows: int) -> pa.StringArray:
    """Return a JSON object for each row, with a field for each array that has a value in the row."""
    members = [
        pc.binary_join_element_wise(pa.scalar(f"{json.dumps(name, ensure_ascii=False)}:"), json_texts(values), "")
        for name, values in fields.items()
    ]
    if not members:
        return pa.repeat(pa.scalar("{}"), rows)
    # The first text is needed because Arrow 26 leaves out the whole row if all of its texts are null.
    joined = pc.binary_join_element_wise(pa.scalar(""), *members, ",", null_handling="skip")
    inside = pc.binary_replace_slice(joined, 0, 1, "")
    return pc.binary_join_element_wise(pa.scalar("{"), inside, pa.scalar("}"), "")


def is_listed(type: pa.DataType) -> bool:
    """Return True for the types of lists and of maps."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
    return any(of_kind(type) for of_kind in kinds)


def value_sizes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of bytes of memory that each value takes.

    >>> value_sizes(pa.array([{"a": "abc", "b": [1, 2]}, {"a": None, "b": []}])).tolist()
    [27, 8]
    """
    type = values.type
    if isinstance(type, pa.BaseExtensionType):
        return value_sizes(values.storage)
    if pa.types.is_dictionary(type):
        sizes: npt.NDArray[np.int64] = np.append(value_sizes(values.dictionary), 0)
        places: npt.NDArray[np.int64] = pc.fill_null(values.indices.cast(pa.int64()), len(sizes) - 1).to_numpy()
        made: npt.NDArray[np.int64] = sizes[places]
        return made
    if pa.types.is_struct(type):
        whole = np.zeros(len(values), np.int64)
        for one in values.flatten():
            whole += value_sizes(one)
        return whole
    if is_listed(type):
        ends, elements = list_parts(values)
        return list_sums(value_sizes(elements), ends) + _PLACE
    if pa.types.is_null(type):
        return np.ones(len(values), np.int64)
    if any(is_kind(type) for is_kind in _TEXTS):
        return np.array(pc.fill_null(pc.binary_length(values), 0), np.int64) + _PLACE
    if pa.types.is_string_view(type) or pa.types.is_binary_view(type):
        return value_sizes(values.cast(pa.large_binary()))
    return np.full(len(values), max(1, type.bit_width // 8), np.int64)


_PLACE = 4
"""The number of bytes that a text or a list takes without its content."""

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def list_parts(values: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return the ends of lists in the array of all their elements, with a zero before them, and this array.

    A null is an empty list. The elements of a map are structs of a key and a value.
    """
    type = values.type
    if pa.types.is_map(type):
        values = values.cast(pa.list_(pa.struct([("key", type.key_type), ("value", type.item_type)])))
    elif not pa.types.is_list(type):
        values = values.cast(pa.list_(type.value_type))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), pc.list_flatten(values)


def list_sums(numbers: npt.NDArray[Any], ends: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return the sum of each list's elements; `ends` are the ends of the lists, with a zero before them."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers, dtype=np.int64)])
    sums: npt.NDArray[np.int64] = np.diff(before[ends])
    return sums


def _lists(values: pa.Array) -> pa.StringArray:
    ends, elements = list_parts(values)
    opening, closing = "[", "]"
    if pa.types.is_map(values.type):
        opening, closing = "{", "}"
        keys, inner = elements.flatten()
        texts = pc.binary_join_element_wise(json_texts(keys), pc.fill_null(json_texts(inner), "null"), ":")
    else:
        texts = pc.fill_null(json_texts(elements), "null")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), texts), ",")
    made = pc.binary_join_element_wise(pa.scalar(opening), joined, pa.scalar(closing), "")
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.string()))


def _floats(values: pa.Array) -> pa.StringArray:
    single = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values
    texts = single.cast(pa.string())
    whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    for text, name in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, text), f'"{name}"', texts)
    return texts


def _instants(values: pa.Array) -> pa.StringArray:
    """Write instants in ISO 8601, with six digits of a second, or nine if they are in nanoseconds."""
    type, numbers = values.type, values.cast(pa.int64())
    zone = "UTC" if type.tz else None
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type.unit]
    given = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    beyond = (given // per_second < BEGINNING // 10**6) | (given // per_second > END_OF_TIME // 10**6)
    usual = pc.if_else(pa.array(beyond), pa.scalar(0, pa.int64()), numbers).cast(pa.timestamp(type.unit, zone))
    texts = usual if type.unit == "ns" else usual.cast(pa.timestamp("us", zone))
    made = pc.replace_substring(texts.cast(pa.string()), " ", "T", max_replacements=1)
    return _quoted_with(made, {int(row): _far(int(given[row]), type) for row in np.flatnonzero(beyond)})


def _far(number: int, type: pa.TimestampType) -> str:
    """Write an instant outside the years of tables."""
    micros = number * 10**6 // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type.unit]
    if not -(2**63) <= micros < 2**63:
        return f"{number} {'milliseconds' if type.unit == 'ms' else 'seconds'} since 1970"
    return shown_instant(micros).replace(" ", "T") + ("Z" if type.tz else "")


def _dates(values: pa.Array) -> pa.StringArray:
    days = values.cast(pa.date32(), safe=False).cast(pa.int32())
    given = pc.fill_null(days, 0).to_numpy(zero_copy_only=False)
    beyond = (given < FIRST_DAY) | (given > LAST_DAY)
    usual = pc.if_else(pa.array(beyond), pa.scalar(0, pa.int32()), days).cast(pa.date32()).cast(pa.string())
    return _quoted_with(usual, {int(row): shown_day(int(given[row])) for row in np.flatnonzero(beyond)})


def _quoted_with(texts: pa.StringArray, others: Mapping[int, str]) -> pa.StringArray:
    """Put texts without special characters in quotes; `others` replace some of the texts, by their rows."""
    if others:
        replaced: list[Any] = texts.to_pylist()
        for row, text in others.items():
            replaced[row] = text if replaced[row] is not None else None
        texts = pa.array(replaced, pa.string())
    return pc.binary_join_element_wise(pa.scalar('"'), texts, pa.scalar('"'), "")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_text_of(one) for one in texts.cast(pa.binary()).to_pylist()], pa.string())
    quoted = pc.binary_join_element_wise(pa.scalar('"'), texts, pa.scalar('"'), "")
    special = pc.fill_null(pc.match_substring_regex(texts, r'["\\\x00-\x1f\x7f]'), False)
    if not pc.any(special, min_count=0).as_py():
        return quoted
    escaped = pa.array([json.dumps(one, ensure_ascii=False) for one in texts.filter(special).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped)


def _text_of(given: bytes | None) -> str | None:
    if given is None:
        return None
    try:
        return json.dumps(given.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return json.dumps("base64:" + base64.b64encode(given).decode())


def _one_by_one(values: pa.Array) -> pa.StringArray:
    """Write bytes in base64, and values of rare types as texts."""
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        texts = values.cast(pa.string()) if pa.types.is_time(values.type) else values.cast(pa.int64()).cast(pa.string())
        return _quoted_with(texts, {})
    made = list[str | None]()
    for one in values.to_pylist():
        text = base64.b64encode(one).decode() if isinstance(one, bytes) else one
        made.append(None if text is None else json.dumps(str(text), ensure_ascii=False))
    return pa.array(made, pa.string())
