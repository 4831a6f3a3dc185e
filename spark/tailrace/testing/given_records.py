"""Read the records of a test as a stream reads them from a source (rules X5 and X6).

A record is a dict as the source writes it: its names and places are the source's (`Log.fields`), and its values are
those of JSON. For values that JSON does not have, Python's may stand: a `datetime` for an instant, whatever its form in
the source; a `date`, a `time`, a `Decimal`, `bytes`, and the doubles that are no numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, TypeAlias

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import instant
from tailrace.model.base.types import REAL
from tailrace.model.base.values import in_utc
from tailrace.model.logs.json_records import Branch, JsonRecords, as_record, branch_of
from tailrace.model.logs.log import SIGN, UNITS, Log
from tailrace.model.logs.shapes import Field, Listed, Mapped, Plain, Shape, Struct

Record: TypeAlias = "Mapping[str, Any]"
"""A record of a source, as a test writes it."""


ALLOW = "pass allow_rejected=True, and compare `.rejected`"
"""What `fold` says of records that are rejected."""


class RejectedError(TailraceError, ValueError):
    """The error for records of a test that are rejected, in a test that does not say that some are."""

    def __init__(self, rejected: Sequence[str], mend: str = ALLOW) -> None:
        count = "1 record is" if len(rejected) == 1 else f"{len(rejected)} records are"
        lines = "\n".join(f"  {one}" for one in rejected[:_MOST])
        more = f"\n  and {len(rejected) - _MOST} more" if len(rejected) > _MOST else ""
        super().__init__(f"{count} rejected:\n{lines}{more}\nIf this is meant, {mend}")


class UnwritableError(TailraceError, TypeError):
    """The error for a value in a record that no source can write."""


_MOST = 10


@dataclass
class RecordReader:
    """The reader of a log's records."""

    log: Log
    _records: JsonRecords = field(init=False)
    _root: Branch = field(init=False)

    def __post_init__(self) -> None:
        self._records = JsonRecords(self.log)
        self._root = branch_of(list(self.log.shape), self.log.rest)

    def read(self, record: Record) -> dict[str, Any] | str:
        """Return the record of the log, or the reason for which it is rejected."""
        own = {name: value for name, value in record.items() if name != SIGN} if self.log.signed else record
        writer = _Writer()
        values = self._records.read(writer.text(own, self._root).encode(errors="surrogatepass"))
        if isinstance(values, str):
            return values
        made = as_record(self.log, values)
        if writer.stood_in:
            made = {name: _with_no_numbers(value) for name, value in made.items()}
        return made | {SIGN: record.get(SIGN, 1)} if self.log.signed else made


def shown(record: Record) -> str:
    """Show a record on one line, in JSON."""
    try:
        return _Writer().text(record, None)
    except UnwritableError:
        return repr(dict(record))


@dataclass
class _Writer:
    """The writer of one record as JSON. `stood_in`: whether a number stands for a double that JSON has not."""

    stood_in: bool = False

    def text(self, value: Any, at: Branch | Field | Shape | None) -> str:
        shape = at.shape if isinstance(at, Field) else at
        match value:
            case None | bool() | str():
                return json.dumps(value, ensure_ascii=False)
            case float() if not isfinite(value) and isinstance(shape, Plain) and shape.type in REAL:
                self.stood_in = True
                return repr(_STANDING_FOR[str(value)])
            case int() | float():
                return json.dumps(value)
            case Decimal():
                return f"{value:f}" if value.is_finite() else "null"
            case datetime():
                return _instant(value, shape)
            case date():
                form = shape.form if isinstance(shape, Plain) else None
                if form in UNITS:
                    return _in_unit(instant(in_utc(datetime(value.year, value.month, value.day))), str(form))
                return json.dumps(value.strftime(form) if form else value.isoformat())
            case time():
                return json.dumps(value.isoformat())
            case bytes():
                return json.dumps(base64.b64encode(value).decode())
            case Mapping():
                return self._object(value, shape)
            case list() | tuple():
                element = shape.element if isinstance(shape, Listed) else None
                return f"[{','.join(self.text(one, element) for one in value)}]"
        raise UnwritableError(
            f"{value!r}: no source writes a {type(value).__name__}; write what JSON has, or a datetime"
        )

    def _object(self, value: Mapping[Any, Any], at: Branch | Shape | None) -> str:
        names: Mapping[str, Branch | Field] = {}
        if isinstance(at, Struct):
            names = branch_of(at.fields, at.rest).children
        elif isinstance(at, Branch):
            names = at.children
        each = at.value if isinstance(at, Mapped) else None
        members = (
            f"{json.dumps(str(name), ensure_ascii=False)}:{self.text(one, each or names.get(name))}"
            for name, one in value.items()
        )
        return f"{{{','.join(members)}}}"


_STANDING_FOR = {"inf": 0xABCDEF * 2.0**-131, "-inf": 0xABCDED * 2.0**-131, "nan": 0xABCDEB * 2.0**-131}
"""The numbers that stand in JSON for doubles that JSON does not have. They are doubles and floats of no other use."""

_NO_NUMBERS = {number: float(name) for name, number in _STANDING_FOR.items()}


def _with_no_numbers(value: Any) -> Any:
    """Put NaN and the infinities where other numbers stand for them, at any depth of a value."""
    if isinstance(value, float):
        return _NO_NUMBERS.get(value, value)
    if isinstance(value, Mapping):
        return {name: _with_no_numbers(one) for name, one in value.items()}
    return [_with_no_numbers(one) for one in value] if isinstance(value, list) else value


def _instant(value: datetime, shape: Branch | Shape | None) -> str:
    form = shape.form if isinstance(shape, Plain) else None
    if form in UNITS:
        return _in_unit(instant(in_utc(value)), str(form))
    return json.dumps(value.strftime(form) if form else value.isoformat())


def _in_unit(micros: int, unit: str) -> str:
    factor, divisor = UNITS[unit]
    return f"{(Decimal(micros) * divisor / factor).normalize():f}"


def read_all(log: Log, records: Iterable[Record]) -> list[tuple[Record, dict[str, Any] | str]]:
    """Read records; each is paired with what it becomes: the record of the log, or the reason for its rejection."""
    reader = RecordReader(log)
    return [(one, reader.read(one)) for one in records]


def source_value(shape: Shape, value: Any) -> Any:
    """Return a value as a source with JSON writes it, in the form of its column; only Python's own types change."""
    if isinstance(value, datetime | date | time | bytes):
        return json.loads(_Writer().text(value, shape), parse_float=Decimal)
    return value
