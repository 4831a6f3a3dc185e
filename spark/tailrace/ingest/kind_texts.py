"""Write values of a schema's fields as JSON, for columns of type `json` and for rejected records.

A value is written as a log of JSON reads it: an instant as a text in ISO 8601, a decimal as a number, and bytes as a
text in base64.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np

from tailrace.ingest.column_values import (
    AnyKind,
    Kind,
    ListKind,
    MapKind,
    RecordKind,
    UnionKind,
    Unreadable,
)
from tailrace.model.base.json_limits import beyond
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.logs.json_records import DAY_MICROS
from tailrace.model.logs.log import UNITS


class NoJsonError(ValueError):
    """The error for a value that JSON cannot represent, such as NaN or a text that is not UTF-8."""


def json_text(kind: AnyKind, value: Any, *, lossy: bool = False) -> str:
    """Return the JSON text of a raw value, without white space.

    If JSON cannot represent the value, `NoJsonError` is raised. With `lossy`, such a value is written as a text.
    """
    if value is None:
        return "null"
    if isinstance(kind, ListKind):
        return f"[{','.join(json_text(kind.element, one, lossy=lossy) for one in value)}]"
    if isinstance(kind, MapKind):
        entries = ((_key(kind.key, one["key"], lossy), one["value"]) for one in value)
        return f"{{{','.join(f'{key}:{json_text(kind.value, one, lossy=lossy)}' for key, one in entries)}}}"
    if isinstance(kind, RecordKind):
        some = [(name, one, value.get(name)) for name, one in kind.fields.items()]
        some = [one for one in some if one[2] is not None] if kind.sparse else some
        return f"{{{','.join(f'{_quoted(name)}:{json_text(one, own, lossy=lossy)}' for name, one, own in some)}}}"
    if isinstance(kind, UnionKind):
        given = ((one, value.get(f"v{number}")) for number, one in enumerate(kind.branches))
        return next((json_text(one, own, lossy=lossy) for one, own in given if own is not None), "null")
    if isinstance(kind, Unreadable):
        return _quoted(str(value))
    try:
        return _plain_text(kind, value)
    except (NoJsonError, UnicodeDecodeError, OverflowError, ValueError) as error:
        if lossy:
            return _quoted(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))
        raise NoJsonError(str(value)) from error


def _key(kind: Kind, key: Any, lossy: bool) -> str:
    text = json_text(kind, key, lossy=lossy)
    return text if text.startswith('"') else _quoted(text)


def _plain_text(kind: Kind, value: Any) -> str:
    match kind.name:
        case "boolean":
            return "true" if value else "false"
        case "float" | "double":
            if not isfinite(value):
                raise NoJsonError
            return str(np.float32(value)) if kind.name == "float" else repr(value)
        case "string" | "enum":
            return _quoted(value.decode() if isinstance(value, bytes) else value)
        case "json":
            text = value.decode() if isinstance(value, bytes) else value
            if beyond(text) is not None:
                raise NoJsonError
            json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
            return str(text)
        case "bytes":
            return _quoted(b64encode(value).decode())
        case "uuid":
            return _quoted(str(UUID(bytes=value)))
        case "decimal":
            assert kind.parts is not None
            # A decimal out of a text keeps all digits, and `scaleb` would round them to the context's.
            return f"{Decimal(str(int.from_bytes(value, 'big', signed=True)) + f'e-{kind.parts[1]}'):f}"
    if kind.unit is None:
        return str(value)
    times, parts = UNITS[kind.unit]
    micros = value * times // parts
    if not BEGINNING <= micros <= END_OF_TIME:
        raise NoJsonError
    if kind.name == "date":
        return _quoted((date(1970, 1, 1) + timedelta(value)).isoformat())
    at = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    if kind.name.startswith("time-"):
        if not 0 <= micros < DAY_MICROS:
            raise NoJsonError
        return _quoted(at.strftime("%H:%M:%S.%f"))
    return _quoted(at.isoformat() + ("" if kind.name.startswith("local-") else "Z"))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _refuse(name: str) -> None:
    raise NoJsonError(name)
