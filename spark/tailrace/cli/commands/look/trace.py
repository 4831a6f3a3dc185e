"""`tailrace trace`: find the windows and answers of a record, or the records of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.runtime.options import key_texts
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import (
    bounds,
    key_text,
    parse_instant,
    quantity,
    span,
    time_text,
    value_text,
)
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.loader import load, load_any
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.trace.answer_records import AnswerRecords
    from tailrace.trace.steps import Step
    from tailrace.trace.wanted_records import FoundRecords, LandedRecord, RejectedRecord, Wanted

SHOWN = 200
"""The maximum length at which the printed report cuts a value (in characters) or a rejected record (in bytes). JSON
output has the full values.
"""

_STYLES = {"counted": "green", "given": "green", "waiting": "cyan", "late": "yellow", "left out": "yellow"}
_STYLES |= {"gone": "red", "taken back": "red"}


def trace(
    definition: str,
    id: list[str] | None = None,
    place: str | None = None,
    line: str | None = None,
    where: str | None = None,
    key: list[str] | None = None,
    window: str | None = None,
    limit: int = 20,
    json: bool = False,
) -> None:
    """Find a record: when it was landed, its windows, and the panes and answers that count it.

    The search covers all stages: if an answer counts the record, and a later stage reads that answer, the search
    continues in the later stage. The options --id, --place and --line also find rejected records. With --key and
    --window, the command finds the records of an answer instead. Reads the tables, without Spark.
    """
    output, settings = Output(json), Settings()
    ways = {"--id": id, "--place": place, "--line": line, "--where": where, "--window": window}
    asked = [name for name, given in ways.items() if given]
    if len(asked) != 1:
        raise UsageError(
            f"{', '.join(asked) or 'nothing'} is given: expected one of --id, --place, --line, --where and --window"
        )
    if window is not None:
        _answer(output, settings, definition, key or [], parse_instant(window, "--window"), limit)
        return
    found = load_any(definition)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.tracing import Tracing
    from tailrace.trace.wanted_records import Wanted, find_in_logs

    lake = Lake(settings)
    if line is not None:
        from tailrace.trace.lines import find_line

        wanted = Wanted.at_line(line)
        there = find_line(lake, found.sources, wanted, limit)
    else:
        wanted = Wanted(id=tuple(id or ()), where=where) if place is None else Wanted.at(place)
        there = find_in_logs(lake, found.sources, wanted, limit)
    tracing = Tracing(lake, found)
    traced = {one.log: [(record, tracing.of(record)) for record in one.landed] for one in there}
    data = {"definition": found.name, "logs": [_data(one, traced[one.log]) for one in there]}
    output.report(data, (line for one in there for line in _lines(one, traced[one.log], wanted)))


def _lines(found: FoundRecords, traced: Sequence[tuple[LandedRecord, list[Step]]], wanted: Wanted) -> Iterator[Any]:
    for record, steps in traced:
        yield from _record(record, steps)
        yield ""
    for one in found.rejected:
        yield from _rejected(one)
        yield ""
    if not found.landed and not found.rejected:
        yield f"{found.log}: there is no such record, and none was rejected"
        if wanted.source is not None:
            yield "what is not there was blank, came again and was dropped by its id, or has not been read yet"
    if found.more:
        yield f"there are more: --limit shows more than {quantity(len(found.landed) or len(found.rejected), 'record')}"
    if wanted.id and found.dropped:
        yield f"{quantity(found.dropped, 'record')} of {found.log} came again and were dropped, of all ids together"


def _record(record: LandedRecord, steps: Sequence[Step]) -> Iterator[Any]:
    where = Text(f"  {_place(record)}")
    yield Text.assemble((record.log, "bold"), where, f"  landed in epoch {record.epoch}, {time_text(record.arrival)}")
    yield Text(_values_text(record.values), style="dim")
    if steps:
        rows = map(_cells, steps)
        yield table("definition", "key", "window", "", "what became of it", rows=rows, whole=("window",))


def _cells(step: Step) -> tuple[str | Text, ...]:
    from tailrace.trace.steps import InWindow

    key, window = (Text(_cut(key_text(step.key))), bounds(step.window)) if isinstance(step, InWindow) else ("", "")
    told = step.told(lambda micros: span(micros / 1e6), _value)
    return step.definition, key, window, Text(step.word, style=_STYLES[step.word]), Text("; ".join(told))


def _rejected(one: RejectedRecord) -> Iterator[Any]:
    yield Text.assemble(
        (one.log, "bold"), f"  {_place(one)}", ("  rejected", "red"), f" in epoch {one.epoch}: {_cut(one.error)}"
    )
    yield Text(one.raw[:SHOWN].decode(errors="backslashreplace") + ("…" if len(one.raw) > SHOWN else ""), style="dim")


def _answer(output: Output, settings: Settings, definition: str, key: Sequence[str], at: int, limit: int) -> None:
    pipeline = load(definition)
    texts = key_texts(pipeline, key)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.answer_records import answer_records
    from tailrace.trace.key_history import key_values

    found = answer_records(Lake(settings), pipeline, key_values(pipeline, texts), at, limit)
    output.report(_answer_data(pipeline, found), _answer_lines(pipeline.name, found))


def _answer_lines(name: str, found: AnswerRecords) -> Iterator[Any]:
    key = _cut(key_text(found.key))
    if found.window is None:
        yield f"{name}: there is no pane of {key} in a window that holds this instant, and no late record"
        return
    yield Text.assemble((name, "bold"), Text(f"  {key}  "), bounds(found.window))
    if found.answer is None:
        yield "it has no answer"
    else:
        values = ((one, Text(_cut(value_text(value)))) for one, value in found.answer.answer.items())
        yield facts(
            [*values, ("of", f"generation {found.answer.version.generation}, epoch {found.answer.version.epoch}")]
        )
    if found.records:
        records = (
            (Text(one.state.value, style=_STYLES[one.state.value]), one.record.log, Text(_place(one.record)),
             str(one.record.epoch), Text(_values_text(one.record.values)))
            for one in found.records
        )  # fmt: skip
        yield table("", "log", "place", "epoch", "record", rows=records, right=("epoch",))
    if found.answers:
        answers = (
            (Text(_cut(key_text(one.key))), bounds(one.window), ".".join(map(str, one.pane.version)),
             Text(_values_text(one.pane.answer)))
            for one in found.answers
        )  # fmt: skip
        yield table("key", "window", "version", "answer", rows=answers, whole=("window",))
    if found.more:
        yield "there are more: --limit shows more of them"


def _data(found: FoundRecords, traced: Sequence[tuple[LandedRecord, list[Step]]]) -> dict[str, Any]:
    """Return as JSON data the records that were found in a log, and the steps in the processing of each record."""
    rejected = [
        {"raw": one.raw.decode(errors="backslashreplace"), "error": one.error, "place": _place_data(one)}
        for one in found.rejected
    ]
    return {
        "log": found.log,
        "records": [{**_landed_data(record), "steps": [step.data for step in steps]} for record, steps in traced],
        "rejected": rejected,
        **fields(found, "more", "dropped"),
    }


def _landed_data(record: LandedRecord) -> dict[str, Any]:
    return {"place": _place_data(record), **fields(record, "landed_at=arrival", "values")}


def _place_data(record: LandedRecord | RejectedRecord) -> dict[str, Any]:
    from tailrace.trace.wanted_records import line_number

    return {**fields(record, "epoch", "source", "offset"), "line": line_number(record.source, record.offset)}


def _answer_data(pipeline: Pipeline, found: AnswerRecords) -> dict[str, Any]:
    """Return an answer as JSON data, together with the records of its window and what happened to each record."""
    return {
        "pipeline": pipeline.name,
        "key": dict(zip(pipeline.key, found.key, strict=True)),
        **fields(found, "window", "answer=answer.answer"),
        "records": [_landed_data(one.record) | fields(one, "record.log", "state") for one in found.records],
        "answers": [fields(one, "key", "window", "pane.version", "pane.answer") for one in found.answers],
        "more": found.more,
    }


def _place(one: LandedRecord | RejectedRecord) -> str:
    from tailrace.trace.wanted_records import line_number, place_text

    number = line_number(one.source, one.offset)
    return place_text(one.source, one.offset) + ("" if number is None else f" (line {number:,})")


def _values_text(values: Mapping[str, Any]) -> str:
    from tailrace.trace.steps import values_told

    return values_told(values, _value)


def _value(value: Any) -> str:
    return _cut(value_text(value))


def _cut(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
