"""`tailrace trace`: where a record is, and of which records an answer is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.commands.look.pane_history import keyed, value_shown
from tailrace.cli.runtime.definitions import load, load_any
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import bounds, counted, key_named, parsed, span, time_text
from tailrace.cli.terminal.usage import UsageError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.trace.answer_records import AnswerRecords
    from tailrace.trace.steps import Step
    from tailrace.trace.wanted_records import FoundRecords, LandedRecord, RejectedRecord, Wanted

SHOWN = 200
"""The maximum number of letters of a value, or bytes of a rejected record, that are shown to people."""

_STYLES = {"counted": "green", "given": "green", "waiting": "cyan", "late": "yellow", "left out": "yellow"}
_STYLES |= {"gone": "red", "taken back": "red"}


def trace(
    definition: Definition,
    id: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="The record's id: a value for each column of record_id.")
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:OFFSET", help="Its place: the columns _source and _offset of the log, or of its rejected."
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="A condition on the log's columns: \"carrier = 'AA'\".")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="The other way: the key of an answer, as `panes` has it.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="With it the answer's window: its start, or an instant in it.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most records that are looked at.")] = 20,
    json: Json = False,
) -> None:
    """Find a record: when it was landed, in which windows it is, and which panes and answers count it.

    Through all stages: an answer that counts it is followed on. Rejected records are found by id or place. With --key
    and --window, the other way round: of which records an answer is. Reads the tables, without Spark.
    """
    output, settings = Output(json), Settings()
    asked = [
        name for name, given in (("--id", id), ("--place", place), ("--where", where), ("--window", window)) if given
    ]
    if len(asked) != 1:
        raise UsageError(
            f"{', '.join(asked) or 'nothing'} is given: expected one of --id, --place, --where and --window"
        )
    if window is not None:
        _answer(output, settings, definition, key or [], parsed(window, "--window"), limit)
        return
    found = load_any(definition)
    looking()
    from tailrace.cli.commands.look.traced_data import found_data
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.tracing import Tracing
    from tailrace.trace.wanted_records import Wanted, find_in_logs

    lake = Lake(settings)
    wanted = Wanted(id=tuple(id or ()), where=where) if place is None else Wanted.at(place)
    there = find_in_logs(lake, found.sources, wanted, limit)
    tracing = Tracing(lake, found)
    traced = {one.log: [(record, tracing.of(record)) for record in one.landed] for one in there}
    if json:
        output.data({"definition": found.name, "logs": [found_data(one, traced[one.log]) for one in there]})
        return
    for one in there:
        output.text(*_lines(one, traced[one.log], wanted))


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
        yield f"there are more: --limit shows more than {counted(len(found.landed) or len(found.rejected), 'record')}"
    if wanted.id and found.dropped:
        yield f"{counted(found.dropped, 'record')} of {found.log} came again and were dropped, of all ids together"


def _record(record: LandedRecord, steps: Sequence[Step]) -> Iterator[Any]:
    where = Text(f"  {_place(record)}")
    yield Text.assemble((record.log, "bold"), where, f"  landed in epoch {record.epoch}, {time_text(record.arrival)}")
    yield Text(_said(record.values), style="dim")
    rows = table("definition", "key", "window", "", "what became of it", whole=("window",))
    for step in steps:
        rows.add_row(*_cells(step))
    if steps:
        yield rows


def _cells(step: Step) -> tuple[str | Text, ...]:
    from tailrace.trace.steps import InWindow

    key, window = (Text(_cut(key_named(step.key))), bounds(step.window)) if isinstance(step, InWindow) else ("", "")
    told = step.told(lambda micros: span(micros / 1e6), _value)
    return step.definition, key, window, Text(step.word, style=_STYLES[step.word]), Text("; ".join(told))


def _rejected(one: RejectedRecord) -> Iterator[Any]:
    yield Text.assemble(
        (one.log, "bold"), f"  {_place(one)}", ("  rejected", "red"), f" in epoch {one.epoch}: {_cut(one.error)}"
    )
    yield Text(one.raw[:SHOWN].decode(errors="backslashreplace") + ("…" if len(one.raw) > SHOWN else ""), style="dim")


def _answer(output: Output, settings: Settings, definition: str, key: Sequence[str], at: int, limit: int) -> None:
    pipeline = load(definition)
    texts = keyed(pipeline, key)
    looking()
    from tailrace.cli.commands.look.traced_data import answer_data
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.answer_records import answer_records
    from tailrace.trace.key_history import key_values

    found = answer_records(Lake(settings), pipeline, key_values(pipeline, texts), at, limit)
    if output.json:
        output.data({"pipeline": pipeline.name, **answer_data(found, pipeline.key)})
    else:
        output.text(*_answer_lines(pipeline.name, found))


def _answer_lines(name: str, found: AnswerRecords) -> Iterator[Any]:
    key = _cut(key_named(found.key))
    if found.window is None:
        yield f"{name}: there is no pane of {key} in a window that holds this instant, and no late record"
        return
    yield Text.assemble((name, "bold"), Text(f"  {key}  "), bounds(found.window))
    if found.answer is None:
        yield "it has no answer"
    else:
        values = ((one, Text(_cut(value_shown(value)))) for one, value in found.answer.answer.items())
        yield facts(
            [*values, ("of", f"generation {found.answer.version.generation}, epoch {found.answer.version.epoch}")]
        )
    if found.records:
        rows = table("", "log", "place", "epoch", "record", right=("epoch",))
        for one in found.records:
            record, state = one.record, one.state.value
            cells = record.log, Text(_place(record)), str(record.epoch), Text(_said(record.values))
            rows.add_row(Text(state, style=_STYLES[state]), *cells)
        yield rows
    if found.answers:
        made = table("key", "window", "version", "answer", whole=("window",))
        for answer in found.answers:
            version = ".".join(map(str, answer.pane.version))
            made.add_row(
                Text(_cut(key_named(answer.key))), bounds(answer.window), version, Text(_said(answer.pane.answer))
            )
        yield made
    if found.more:
        yield "there are more: --limit shows more of them"


def _place(one: LandedRecord | RejectedRecord) -> str:
    from tailrace.trace.wanted_records import place_text

    return place_text(one.source, one.offset)


def _said(values: Mapping[str, Any]) -> str:
    from tailrace.trace.steps import values_told

    return values_told(values, _value)


def _value(value: Any) -> str:
    return _cut(value_shown(value))


def _cut(value: str | None) -> str:
    value = value or ""
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
