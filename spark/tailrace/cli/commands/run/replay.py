"""`tailrace replay`: fold recorded epochs again and compare their rows with the ledger, or show an earlier state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.runtime.options import EngineName, key_texts, settings_on
from tailrace.cli.runtime.spark_session import activity, ending_spark
from tailrace.cli.terminal.console import Output, facts, mark, table
from tailrace.cli.terminal.formats import bounds, quantity, span, time_text, value_text
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.model.base.time import instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.windows import Window
from tailrace.plan.loader import load_ranged
from tailrace.telemetry.json_fields import ENGINE, chain_data, fields

if TYPE_CHECKING:
    from tailrace.verify.as_of import AsOf
    from tailrace.verify.row_diff import Replayed, RowDifference

ROWS = 10
"""The default number of open windows, and of answers, that `--as-of` shows."""

_KINDS = {"pane": "panes", "retraction": "retractions", "late": "late records", "rejected": "rejected records"}
_KINDS |= {"partial": "partials", "production": "rows"}


def replay(
    definition: str,
    epochs: str | None = None,
    as_of: int | None = None,
    rows: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help=f"With --as-of: the number of windows and of answers to show. [default: {ROWS}]"
        ),
    ] = None,
    key: list[str] | None = None,
    keep: str | None = None,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Fold recorded epochs again from the log, with their clocks, and prove that the rows equal the ledger's rows.

    The exit status is 1 if a row differs. Every stage of a definition is replayed. With --as-of, the command shows the
    state after an epoch instead: the open windows, the answers, the watermark and the processing time. The command
    reads the state that the tables have when the command starts. The command does not take the lease (the right to
    write the tables), so a stream may run at the same time.
    """
    output, settings = Output(json), settings_on(engine)
    pipeline = load_ranged(definition)
    if not pipeline.windowed and (as_of is not None or keep is not None):
        kind = pipeline.kind_name
        raise UsageError(f"{pipeline.name} is a {kind}, which has no windows: --as-of and --keep are for windows")
    if as_of is not None:
        if epochs is not None:
            raise UsageError("--as-of and --epochs ask for two things: pass one of them")
        windowed = cast("Pipeline", pipeline)
        texts = None if key is None else key_texts(windowed, key)
        with activity(output, f"reading {pipeline.name} as of epoch {as_of}"), ending_spark():
            from tailrace.lake.catalog.lake import Lake
            from tailrace.trace.key_history import key_values
            from tailrace.verify.as_of import as_of as state_as_of

            values = None if texts is None else key_values(windowed, texts)
            most = ROWS if rows is None else rows
            state = state_as_of(Lake(settings), windowed, as_of, rows=most, key=values, keep=keep)
        output.report(_state_data(windowed, state), _state(windowed, state))
        return
    if rows is not None or key is not None:
        raise UsageError(f"{'--rows' if key is None else '--key'} goes with --as-of: pass that too, or leave it out")
    first, last = _parse_epochs(epochs)
    with activity(output, f"replaying {pipeline.name}") as doing, ending_spark():
        from tailrace.lake.catalog.lake import Lake
        from tailrace.verify.replay import replay as run

        replays = {}
        for stage in pipeline.stages:
            name = stage.name
            doing(f"folding {name} again")

            def watch(epoch: int, name: str = name) -> None:
                if output.live:
                    doing(f"folding {name} again, epoch {epoch}")

            own = keep if stage is pipeline else None
            replays[name] = run(Lake(settings), stage, first, last, keep=own, watch=watch)
    if json:
        output.data(chain_data(_data(pipeline.kind_name, name, replayed) for name, replayed in replays.items()))
    else:
        output.blocks(_lines(name, replayed) for name, replayed in replays.items())
    if not all(replayed.ok for replayed in replays.values()):
        raise typer.Exit(ExitStatus.FOUND)


def _parse_epochs(epochs: str | None) -> tuple[int | None, int | None]:
    """Parse the value of `--epochs`, and return the first and the last epoch of the range.

    Each of the two values is None if the range is open at that end.
    """
    if epochs is None:
        return None, None
    match = re.fullmatch(r"(\d*)(\.\.)?(\d*)", epochs.strip())
    if match is None or not (match[1] or match[3]):
        raise UsageError(f"--epochs {epochs!r}: expected a range of epochs, for example 3..7, 3.., ..7 or 3")
    first, last = (int(number) if number else None for number in (match[1], match[3]))
    if match[2] is None:
        return first, first
    if first is not None and last is not None and first > last:
        raise UsageError(f"--epochs {epochs}: there is none from {first} to {last}; the first one comes first")
    return first, last


def _data(kind: str, name: str, replayed: Replayed) -> dict[str, Any]:
    return {
        kind: name,
        "ok": replayed.ok,
        "epochs": [replayed.first, replayed.last],
        "last_epoch": replayed.latest,
        "rows": {kind: fields(count, "ledger", "replay", "same") for kind, count in replayed.counts.items()},
        "differences": [
            fields(one, "kind", "epoch", "key", "window", "ledger", "replay")
            | {"times": dict(zip(("ledger", "replay"), one.times, strict=True))}
            for one in replayed.differences
        ],
        **fields(replayed, "table", "seconds", *ENGINE),
    }


def _lines(name: str, replayed: Replayed) -> Iterator[Any]:
    whole = (replayed.first, replayed.last) == (0, replayed.latest)
    which = "all there are" if whole else f"of 0..{replayed.latest}"
    folded = f"{replayed.first}..{replayed.last}, {which}"
    if replayed.first > replayed.last:
        folded = f"none yet since epoch {replayed.latest}, at which this generation was put in place"
    header = [("epochs", folded), ("engine", str(replayed.engine))]
    header.append(("took", span(replayed.seconds)))
    yield Text(name, style="bold")
    yield facts([*header, *([("kept in", replayed.table)] if replayed.table else [])])
    rows = table("", "rows", "in the ledger", "replayed", "the same", right=("in the ledger", "replayed", "the same"))
    for kind in sorted(replayed.counts, key=[*_KINDS, *replayed.counts].index):
        count = replayed.counts[kind]
        numbers = (count.ledger, count.replay, count.same)
        rows.add_row(mark(ok=len(set(numbers)) == 1), _KINDS.get(kind, kind), *(f"{number:,}" for number in numbers))
    yield from ("", rows, "")
    if replayed.ok:
        yield Text("the ledger comes out again, row for row", style="bold green")
        return
    yield _differences(replayed.differences)
    lost = sum(count.ledger - count.same for count in replayed.counts.values())
    made = sum(count.replay - count.same for count in replayed.counts.values())
    verdict = f"{quantity(lost, 'row')} of the ledger did not come out again, {quantity(made, 'other')} did"
    yield from ("", Text(verdict, style="bold red"))


def _differences(differences: Sequence[RowDifference]) -> Table:
    made = table("epoch", "row", "key", "window", "in the ledger", "replayed", right=("epoch",), whole=("window",))
    for one in differences:
        start, end = one.window
        where = bounds(Window(instant(start), instant(end))) if start is not None else "–"
        key = ", ".join(value_text(value) for value in one.key.values())
        ledger, replay = one.times
        made.add_row(str(one.epoch), one.kind, key, where, _side(one.ledger, ledger), _side(one.replay, replay))
    return made


def _side(row: Mapping[str, Any] | None, times: int) -> str:
    """Return as text one side of a difference: the row in the ledger, or the row that the replay computed.

    `times` is the number of times that the row occurs. The text includes this number if it is greater than 1. If `row`
    is None, the text contains only the number, or "nothing" if the number is 0.
    """
    if row is None:
        return quantity(times, "time") if times else "nothing"
    values = ", ".join(f"{name} {_plain(value)}" for name, value in row.items())
    return f"{quantity(times, 'time')}: {values}" if times > 1 else values


def _plain(value: Any) -> str:
    return time_text(instant(value)) if hasattr(value, "tzinfo") else value_text(value)


def _state_data(pipeline: Pipeline, state: AsOf) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        **fields(
            state, "clock.epoch", "last_epoch=latest", "clock.watermark", "clock.processing_time", "clock.signals"
        ),
        "open_windows": {"count": state.windows, "rows": [dict(row) for row in state.first_windows]},
        "answers": {"count": state.answers, "rows": [dict(row) for row in state.first_answers]},
        **fields(state, "tables", *ENGINE),
    }


def _state(pipeline: Pipeline, state: AsOf) -> Iterator[Any]:
    clock = state.clock
    yield Text.assemble((pipeline.name, "bold"), (f"  as of epoch {clock.epoch} of 0..{state.latest}", "dim"))
    header = [
        ("watermark", time_text(clock.watermark)),
        ("processing time", time_text(clock.processing_time)),
        ("open windows", f"{state.windows:,}"),
        ("answers", f"{state.answers:,}"),
    ]
    header += [("signals", ", ".join(clock.signals))] if clock.signals else []
    header += [("kept in", ", ".join(state.tables))] if state.tables else []
    header.append(("engine", str(state.engine)))
    yield facts(header)
    if state.first_windows:
        yield from ("", _windows(pipeline, state))
    if state.first_answers:
        yield from ("", _answers(pipeline, state))


def _windows(pipeline: Pipeline, state: AsOf) -> Table:
    numbers = ("gen", "panes", "fresh")
    rows = (
        (*_place(pipeline, row), *(f"{row[name]:,}" for name in ("generation", "panes", "fresh")),
         time_text(None if row["waiting_since"] is None else instant(row["waiting_since"])))
        for row in state.first_windows
    )  # fmt: skip
    return table(
        *pipeline.key, "window", *numbers, "waiting since", rows=rows, right=numbers, whole=("window",),
        title="open windows, by their end", caption=_caption(len(state.first_windows), state.windows),
    )  # fmt: skip


def _answers(pipeline: Pipeline, state: AsOf) -> Table:
    results = pipeline.columns_shown(state.first_answers)
    rows = (
        (*_place(pipeline, row), *(_plain(row.get(name)) for name in results), row["timing"].replace("_", " "),
         str(row["epoch"]))
        for row in state.first_answers
    )  # fmt: skip
    return table(
        *pipeline.key, "window", *results, "timing", "epoch", rows=rows, right=(*results, "epoch"), whole=("window",),
        title="latest answers", caption=_caption(len(state.first_answers), state.answers),
    )  # fmt: skip


def _place(pipeline: Pipeline, row: Mapping[str, Any]) -> tuple[str, ...]:
    window = Window(instant(row["window_start"]), instant(row["window_end"]))
    return (*(_plain(row[name]) for name in pipeline.key), bounds(window))


def _caption(count: int, of: int) -> str | None:
    return f"{count:,} of {of:,}: --rows shows more, --keep keeps all" if count < of else None
