"""Two logs of made-up epochs in a lake, as a stream lands them, and definitions over them folded in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import nan
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Union, minutes, seconds
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.epoch_properties import IDLE, clock_properties, last_epoch
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.definition import Definition
from tailrace.model.windows.panes import Pane
from tests.support.cases.clicks import START
from tests.support.engines.spark_runs import arrow_bundle, comparable
from tests.support.lakes.recorded_ledgers import no_spark

SECOND = 1_000_000
SPOTS = "array<struct<slot:int,share:double,words:array<string>>>"
SHOP = "struct<page:string,raw:binary,sizes:array<array<float>>>"
VIEWS = Log(
    name="views", columns={"at": "timestamp", "ad": "string", "spots": SPOTS}, event_time="at", disorder=seconds(5)
)
CLICKS = Log(
    name="clicks", columns={"seen": "timestamp", "ad": "string", "cents": "bigint", "shop": SHOP}, event_time="seen",
    disorder=seconds(5),
)  # fmt: skip
ADS = Union(name="ads", of=(VIEWS, CLICKS))
PATIENT = Pipeline(
    name="patient", log=ADS, key="ad", what={"n": Count()}, where=Fixed(minutes(1)), how=RETRACTING,
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), allowed_lateness=minutes(2),
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A log's part of an epoch: its records, its watermark, and whether it is idle; None where it has no commit."""

    records: Sequence[Mapping[str, Any]] = ()
    watermark: int = BEGINNING
    idle: bool = False


@dataclass
class Logs:
    """The logs of made-up epochs in a lake, as a stream lands them: each epoch is a commit of each log."""

    lake: Lake
    epochs: list[Mapping[str, Part | None]] = field(default_factory=list)
    now: Callable[[int], int] = int
    """The processing time of an epoch, in microseconds."""

    def __post_init__(self) -> None:
        for log in (VIEWS, CLICKS):
            for contract in (log_contract(log), rejected_contract(log)):
                self.lake.ensure(contract, {"epoch": "-1"})

    def land(self, parts: Mapping[str, Part | None]) -> None:
        epoch = len(self.epochs)
        for log in (VIEWS, CLICKS):
            part = parts.get(log.name)
            if part is None:
                continue
            rows = arrow_bundle(log, part.records, epoch)
            source = pa.array([f"{log.name}.json"] * rows.num_rows, pa.string())
            rows = rows.set_column(rows.column_names.index("_source"), "_source", source)
            files = self.lake.write_files(log.name, rows)
            said = clock_properties(Clock(epoch, part.watermark, self.now(epoch))) | (
                {IDLE: "true"} if part.idle else {}
            )
            self.lake.change(log.name, FileChange(tuple(files)), said, self.lake.head(log.name).snapshot)
        self.epochs.append(parts)

    def fold(self, *definitions: Definition) -> None:
        group = FoldGroup(no_spark, self.lake, definitions)
        list(group.missed_epochs(last_epoch(self.lake, group.logs)))
        database = group.engines.duck.database
        group.close()
        # A process that opens one stream after the other keeps nothing of those that it closed.
        with pytest.raises(duckdb.ConnectionException):
            database.execute("SELECT 1")

    def together(self, union: Union = ADS) -> Iterable[tuple[list[dict[str, Any]], Clock]]:
        """The epochs as the reference has them: the union's records, at the watermark of both logs."""
        named = {log.name: member for member, log in union.members.items()}
        latest, reached = dict.fromkeys(("views", "clicks"), Part()), BEGINNING
        for epoch, parts in enumerate(self.epochs):
            records: list[dict[str, Any]] = []
            for name, part in parts.items():
                if part is not None:
                    latest[name] = part
                    rows = [dict(one) | {"_epoch": epoch, "_source": f"{name}.json", "_offset": place}
                            for place, one in enumerate(part.records)]  # fmt: skip
                    records += union.records(named[name], rows)
            waited = [part.watermark for part in latest.values() if not part.idle]
            reached = max(reached, min(waited, default=BEGINNING))
            yield records, Clock(epoch, reached, self.now(epoch))


def ledger_panes(lake: Lake, definition: Pipeline) -> list[tuple[Any, ...]]:
    """The panes of a ledger, by epoch, in a form in which they can be compared with the reference's."""
    rows = lake.table(f"{definition.name}__ledger").scan(row_filter="kind = 'pane'").to_arrow().to_pylist()
    names = [*definition.key, *definition.results]
    return sorted(
        (one["epoch"], instant(one["window_start"]), one["retraction"], one["timing"], instant(one["window_end"]),
         str(one["is_last"]), *(_text(one[name]) for name in names))
        for one in rows
    )  # fmt: skip


def reference_panes(definition: Pipeline, panes: Iterable[Pane]) -> list[tuple[Any, ...]]:
    """The panes of the reference, as `ledger_panes` has those of a ledger."""
    return sorted(
        (one.version.epoch, one.window.start, one.retraction, one.timing.value, one.window.end, str(one.is_last),
         *map(_text, (*one.key, *(one.values[name] for name in definition.results))))
        for one in panes
    )  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return repr(instant(value))
    plain = isinstance(value, list | tuple) and not any(isinstance(one, dict | list) for one in value)
    return repr(sorted(value) if plain else comparable(value))


def view(second: int, ad: str) -> dict[str, Any]:
    return {"at": START + timedelta(seconds=second), "ad": ad, "spots": _SPOTS[second % len(_SPOTS)]}


def click(second: int, ad: str, cents: int) -> dict[str, Any]:
    return {
        "seen": START + timedelta(seconds=second), "ad": ad, "cents": cents, "shop": _SHOPS[second % len(_SHOPS)],
    }  # fmt: skip


_SPOTS: Sequence[Any] = (
    [{"slot": 1, "share": nan, "words": ["a", None]}, None], None, [], [{"slot": None, "share": -0.0, "words": []}],
    [{"slot": 1, "share": nan, "words": None}],
)  # fmt: skip
_SHOPS: Sequence[Any] = (
    {"page": "p", "raw": b"\x00", "sizes": [[0.5, nan], None]}, None, {"page": None, "raw": None, "sizes": [[]]},
    {"page": "p", "raw": b"\xff", "sizes": []},
)  # fmt: skip


def reached(second: int) -> int:
    return instant(START) + second * SECOND


def random_epochs(chance: Random, count: int) -> Iterable[Mapping[str, Part | None]]:
    """Epochs of two logs whose records are out of order; a log may lack an epoch, or be idle for a while."""
    now, marks = 0, {"views": BEGINNING, "clicks": BEGINNING}
    for _ in range(count):
        now += chance.choice([5, 20, 70])
        parts: dict[str, Part | None] = {}
        for name in marks:
            some = range(chance.choice([0, 0, 1, 2, 5]))
            times = [now - chance.choice([0, 1, 10, 60, 200]) for _ in some]
            ads = [chance.choice("abc") for _ in some]
            made = [
                view(t, ad) if name == "views" else click(t, ad, chance.randrange(9))
                for t, ad in zip(times, ads, strict=True)
            ]
            if times:
                marks[name] = max(marks[name], reached(max(times) - 5))
            idle = not times and chance.random() < 0.3
            parts[name] = None if not times and chance.random() < 0.2 else Part(made, marks[name], idle)
        yield parts
