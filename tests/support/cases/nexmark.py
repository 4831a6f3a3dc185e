"""The published Nexmark data with its answers, generated events of the same kind, and ways to bring them in epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.nexmark.queries import COLUMNS, Query, Row, query
from tailrace.generate.made_up_logs import LOGS
from tailrace.generate.nexmark import nexmark
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.model.step.step import Record

PUBLISHED = Path(__file__).with_name("published_nexmark")
KINDS = ("person", "auction", "bid")
TIMES = LOGS["nexmark"].instants
OTHERWISE = {"q6": "q6_group_top1"}
"""Queries whose published answer goes by another name."""

LOG = query("q0").definition.sources[0]
Epochs = list[tuple[list[Record], Clock]]


@cache
def published() -> tuple[Record, ...]:
    """The published records, as ones of the log."""
    lines = [(kind, line) for kind in KINDS for line in (PUBLISHED / f"{kind}.jsonl").read_text().splitlines()]
    return tuple(_record({"kind": kind} | json.loads(line)) for kind, line in lines)


@cache
def published_answers() -> dict[str, Any]:
    """The published answers, by the name of their query."""
    found: dict[str, Any] = json.loads((PUBLISHED / "answers.json").read_text())
    return found


def published_answer(one: Query) -> list[Row]:
    """The published answer of a query, its columns in the order of ours."""
    given = published_answers()[OTHERWISE.get(one.name, one.name)]
    places = [given["columns"].index(theirs) for theirs, _ in one.columns]
    return [tuple(_cell(row[place], given["types"][place]) for place in places) for row in given["rows"]]


def published_windows(name: str) -> list[Row]:
    """What is told beside the published answers of windows of that name."""
    rows = json.loads((PUBLISHED / "windows.json").read_text())[name]
    return [tuple(datetime.fromisoformat(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]


@cache
def generated(seconds: int = 20, seed: int = 1) -> tuple[Record, ...]:
    """Some events of the generator, as they become known."""
    made = nexmark(rate=50, length=seconds * 1_000_000, seed=seed, first=instant(datetime(2026, 1, 1, tzinfo=UTC)))
    return tuple(
        _record({name: moment(value) if name in TIMES else value for name, value in one.record.items()}) for one in made
    )


def in_epochs(records: Iterable[Record], chance: Random, spread: float, most: int = 8) -> Epochs:
    """The records up to `spread` seconds out of order, in some epochs, no record behind its watermark; then the end."""
    order = sorted(records, key=lambda one: one["date_time"].timestamp() + chance.uniform(0, spread))
    cuts = sorted(chance.sample(range(1, len(order)), k=chance.randrange(1, most)))
    epochs: Epochs = []
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(order)], strict=True)):
        ahead = min((instant(one["date_time"]) for one in order[end:]), default=END_OF_TIME)
        epochs.append((order[begin:end], Clock(number, ahead, number)))
    return epochs


def with_answers() -> list[str]:
    """The names of the queries of which an answer is published."""
    return [name for name in COLUMNS if name != "q11"]


def _record(given: dict[str, Any]) -> Record:
    times = {name: datetime.fromisoformat(given[name]) for name in TIMES if isinstance(given.get(name), str)}
    return dict.fromkeys(LOG.columns) | given | times


def _cell(value: Any, type: str) -> Any:
    if value is None:
        return None
    readers: dict[str, Callable[[Any], Any]] = {"timestamp": datetime.fromisoformat, "decimal": Decimal}
    return readers[type](value) if type in readers else value
