"""Transcripts: what goes in and what must come out, worked out by hand, for every execution to replay.

A file says one claim. It has the definition, each part as a definition would have it; then the epochs, each with the
panes that fire in it and the records that are too late. `render` writes what an execution did in the same words, so a
test compares two texts:

    claim: M2. Sessions that just touch stay apart.
    where: Sessions(minutes(1))
    when: AfterWatermark()
    epochs:
    - now: "06:00"
      watermark: "02:00"
      records: [a 00:10 5, a 01:10 7]
      panes:
      - + a 00:10-01:10 5 on_time 0
    - now: "06:30"
      watermark: end
      records: [a 01:20 1]
      late:
      - a 01:20 in 01:20-02:20 expired

An epoch is its processing time, its watermark (`-` is before everything, `end` is after) and its records: key, event
time and value, and with `log: VISITS` other columns by their names (`page=home`). `signals` are those that came with
it; `late` and `rejected` are the records that came too late for a window, and those that a step could not take. A pane
is `+`, or `-` when it takes back; then key, window, results (`of` the answer, where they differ), timing, pane index.
All times are minutes and seconds past noon, as in the paper. A generation other than 0 is told at the end of the pane's
line, and so is a watermark other than the epoch's: that before the epoch advanced it.

In `stages/` a definition goes on in `then`, a list of later stages that read the panes of the one before; what they
give comes as `second` and `third` beside the epoch's `panes`. A later stage's pane tells its watermark where it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any

import yaml

from tailrace.model.base import conditions, expressions, time
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.combiners import basic, first_last, lists, sketches, variance
from tailrace.model.definition import record_steps
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import examples
from tailrace.model.samples.examples import SCORES, at
from tailrace.model.step.step import Record
from tailrace.model.triggers import combinators, punctuation, trigger
from tailrace.model.windows import calendars, panes, windows
from tailrace.model.windows.panes import Late, Pane, Rejected
from tailrace.model.windows.windows import Window

HERE = Path(__file__).parent
_MODULES = (
    calendars, basic, record_steps, expressions, lists, conditions, first_last, panes, sketches, variance, time,
    combinators, punctuation, trigger, windows,
)  # fmt: skip
# Not imported, so that its classes travel to Spark's Python workers by value, as those of a definition's file do.
_OWN = {name: value for name, value in run_path(str(HERE / "own.py")).items() if isinstance(value, type)}
_WORDS = {name: value for module in _MODULES for name, value in vars(module).items()} | _OWN
_WORDS |= {"Decimal": Decimal, "replace": replace, "SCORES": SCORES}
_NOON = instant(examples.NOON)
_PLAIN = ("on_time", "closing", "finishing")
"""Parts of a definition that are a word."""


@dataclass(frozen=True)
class Transcript:
    """One file: its name, the claim, the definition, the epochs, and what must come out, in the words of `render`."""

    name: str
    claim: str
    pipeline: Pipeline
    epochs: tuple[tuple[list[dict[str, Any]], Clock], ...]
    expected: str

    def __str__(self) -> str:
        return self.name


VISITS = replace(
    SCORES, name="visits", columns={**SCORES.columns, "page": "string", "paid": "boolean", "price": "decimal(8,2)"}
)
"""A log with more columns than the paper's."""
_USUAL: Mapping[str, Any] = {"what": {"total": basic.Sum("value")}, "key": "team", "log": SCORES}


def transcripts() -> list[Transcript]:
    """All of them, by name."""
    return [load(path.stem) for path in sorted(HERE.glob("*.yaml"))]


@cache
def load(name: str) -> Transcript:
    """The transcript of that name."""
    said = yaml.load((HERE / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    claim, story = said.pop("claim"), said.pop("epochs")
    head = _definition(said)
    epochs = [_epoch(number, one) for number, one in enumerate(story)]
    expected = "\n".join(line for one in story for line in _lines(one))
    pipeline = Pipeline(name=name.lower()[:63], **{**_USUAL, "where": windows.Global(), **head})
    return Transcript(name, claim, pipeline, tuple(epochs), expected)


@dataclass(frozen=True)
class Staged:
    """One file of several stages: the definition is the last stage's, and what must come out is told stage by stage."""

    name: str
    claim: str
    pipeline: Pipeline
    epochs: tuple[tuple[list[dict[str, Any]], Clock], ...]
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def staged() -> list[Staged]:
    """All the transcripts of several stages, by name."""
    return [load_staged(path.stem) for path in sorted((HERE / "stages").glob("*.yaml"))]


@cache
def load_staged(name: str) -> Staged:
    """The transcript of several stages of that name."""
    said = yaml.load((HERE / "stages" / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    claim, story, later = said.pop("claim"), said.pop("epochs"), said.pop("then")
    made = Pipeline(name="first", **{**_USUAL, "how": panes.RETRACTING, **_definition(said)})
    for place, one in zip(_STAGES[1:], later, strict=False):
        made = Pipeline(name=place, log=made.panes, **{"how": panes.RETRACTING, **_definition(one)})
    epochs = tuple(_epoch(number, one) for number, one in enumerate(story))
    kinds = ("panes", *_STAGES[1:])[: len(made.stages)]
    expected = tuple(
        "\n".join(line for one in story for line in _lines(one, kind, late=kind == "panes")) for kind in kinds
    )
    return Staged(name, claim, made, epochs, expected)


_STAGES = ("first", "second", "third")


def _definition(said: Mapping[str, Any]) -> dict[str, Any]:
    words = _WORDS | {"VISITS": VISITS}
    return {part: value if part in _PLAIN else eval(value, words) for part, value in said.items()}


Epochs = list[tuple[Sequence[Record], Clock]]


def split(epochs: Sequence[tuple[Sequence[Record], Clock]]) -> Epochs:
    """An epoch for each record, with the clock before it; the epoch's own clock comes after its records."""
    made, before = [], Clock(0, BEGINNING, epochs[0][1].processing_time)
    for bundle, clock in epochs:
        moments = [([record], replace(before, processing_time=clock.processing_time)) for record in bundle]
        made += [*moments, ([], clock)]
        before = clock
    return [(bundle, replace(clock, epoch=number)) for number, (bundle, clock) in enumerate(made)]


def joined(epochs: Sequence[tuple[Sequence[Record], Clock]], size: int) -> Epochs:
    """So many epochs in one, at the last one's clock."""
    parts = [epochs[place : place + size] for place in range(0, len(epochs), size)]
    return [([record for bundle, _ in part for record in bundle], part[-1][1]) for part in parts]


def render(
    epochs: Iterable[tuple[Sequence[Mapping[str, Any]], Clock]],
    fired: Iterable[Pane],
    late: Iterable[Late],
    rejected: Iterable[Rejected] = (),
) -> str:
    """What an execution did, in the words of a transcript; within an epoch by key and window."""
    panes, lost, bad, lines = list(fired), list(late), list(rejected), list[str]()
    for bundle, clock in epochs:
        records = ", ".join(f"{_place(record)} {_value(record['value'])}{_more(record)}" for record in bundle)
        lines.append(f"{_told(clock.processing_time)} [{_told(clock.watermark)}]  {records}".rstrip())
        own = [pane for pane in panes if pane.version.epoch == clock.epoch]
        for pane in sorted(own, key=lambda p: (repr(p.key), p.window, p.version, not p.retraction)):
            lines.append(_pane(pane, clock))
        gone = [one for one in lost if one.epoch == clock.epoch]
        lines += sorted(f"  ! {_place(one.record)} in {_span(one.window)} {one.reason}" for one in gone)
        lines += sorted(f"  x {_place(one.record)}: {one.reason}" for one in bad if one.epoch == clock.epoch)
    return "\n".join(lines)


def _epoch(number: int, said: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Clock]:
    now, watermark = said["now"], said["watermark"]
    bundle = []
    for record in said.get("records", ()):
        team, when, value, *more = record.split()
        bundle.append(
            {
                "team": None if team == "null" else team,
                "value": None if value == "null" else int(value),
                "at": at(when),
                "seen": at(now),
                **{name: _read(text) for name, _, text in (one.partition("=") for one in more)},
            }
        )
    named = {"-": BEGINNING, "end": END_OF_TIME}
    reached = named[watermark] if watermark in named else instant(at(watermark))
    return bundle, Clock(number, reached, instant(at(now)), tuple(said.get("signals", ())))


def _read(text: str) -> Any:
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    return Decimal(text) if text[:1].isdigit() or text[:1] == "-" else text


def _lines(said: Mapping[str, Any], kind: str = "panes", *, late: bool = True) -> Iterable[str]:
    yield f"{said['now']} [{said['watermark']}]  {', '.join(said.get('records', ()))}".rstrip()
    yield from (f"  {pane}" for pane in said.get(kind, ()))
    yield from (f"  ! {one}" for one in (said.get("late", ()) if late else ()))
    yield from (f"  x {one}" for one in (said.get("rejected", ()) if late else ()))


def _more(record: Mapping[str, Any]) -> str:
    own = {name: value for name, value in record.items() if name not in SCORES.columns and value is not None}
    return "".join(f" {name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in own.items())


def _pane(pane: Pane, clock: Clock) -> str:
    sign = "-" if pane.retraction else "+"
    values = _values(pane.values) + ("" if pane.values == pane.answer else f" of {_values(pane.answer)}")
    told = f"  {sign} {_key(pane.key)} {_span(pane.window)} {values} {pane.timing.value} {pane.version.index}"
    if pane.watermark != clock.watermark:
        told += f" at [{_told(pane.watermark)}]"
    return told + (f" generation {pane.version.generation}" if pane.version.generation else "")


def _values(values: Mapping[str, Any]) -> str:
    if len(values) == 1:
        return _value(*values.values())
    return " ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: object) -> str:
    return "null" if value is None else str(value)


def _key(key: Sequence[Any]) -> str:
    return "/".join(_value(part) for part in key) or "all"


def _place(record: Mapping[str, Any]) -> str:
    return f"{_value(record['team'])} {_told(instant(record['at']))}"


def _span(window: Window) -> str:
    return "always" if window.end == END_OF_TIME else f"{_told(window.start)}-{_told(window.end)}"


def _told(micros: int) -> str:
    if micros in (BEGINNING, END_OF_TIME):
        return "-" if micros == BEGINNING else "end"
    whole, part = divmod((micros - _NOON) // 1_000_000, 60)
    return f"{whole:02}:{part:02}"
