"""A small lake made without a JVM: one pipeline's tables with a few rows, as a stream would have left them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Mean, Pipeline, hours
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.owned_tables import contracts
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.settings import Settings

RIDES = Log(
    name="rides",
    columns={"at": "timestamp", "city": "string", "price": "bigint"},
    event_time="at",
    disorder=hours(1),
)

HOURLY = Pipeline(
    name="hourly_rides",
    log=RIDES,
    key="city",
    what={"rides": Count(), "mean_price": Mean("price")},
    where=Fixed(hours(1)),
    when=AfterWatermark(late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(2),
)

DEFINITION = """
from tests.support.lakes.small_lake import HOURLY
"""


def at(hour: int, minute: int = 0) -> datetime:
    """An instant of the day that the rows are of."""
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


def pane(
    city: str, hour: int, epoch: int, index: int, values: tuple[int, float], timing: str, *, back: bool = False
) -> dict[str, Any]:
    """A pane of an hour's window, fired when the watermark was half an hour past it."""
    return {
        "kind": "pane",
        "city": city,
        "window_start": at(hour),
        "window_end": at(hour + 1),
        "generation": 1,
        "epoch": epoch,
        "pane_index": index,
        "timing": timing,
        "retraction": back,
        "watermark": at(hour + 1, 30),
        "processing_time": at(hour + 2),
        "writer": "stream",
        "rides": values[0],
        "mean_price": values[1],
    }


def partial(city: str, hour: int, epoch: int, *, gone: bool = False) -> dict[str, Any]:
    """What the ledger consumed of an hour's window."""
    return {
        "kind": "partial",
        "city": city,
        "window_start": at(hour),
        "window_end": at(hour + 1),
        "generation": 1,
        "epoch": epoch,
        "gone": gone,
    }


LATE = {
    "kind": "late",
    "city": "Oslo",
    "window_start": at(9),
    "window_end": at(10),
    "epoch": 2,
    "event_time": at(9, 15),
    "behind": 9_000_000_000,
    "reason": "expired",
    "source_epoch": 2,
    "source_partition": "file:/landing/two.json",
    "source_offset": 7,
}

LEDGER = [
    pane("Oslo", 9, 0, 0, (2, 5.5), "on_time"),
    pane("Oslo", 9, 1, 1, (2, 5.5), "late", back=True),
    pane("Oslo", 9, 1, 1, (3, 1234.5), "late"),
    pane("Rome", 9, 0, 0, (1, 7.0), "on_time"),
    pane("Oslo", 10, 1, 0, (4, 2.0), "on_time"),
    LATE,
    *(partial(city, hour, epoch) for city, hour, epoch in [("Oslo", 9, 0), ("Oslo", 10, 1), ("Oslo", 11, 1)]),
    partial("Rome", 11, 1),
    partial("Rome", 11, 2),
    partial("Rome", 12, 1, gone=True),
]


def make(settings: Settings) -> Lake:
    """The lake, after epoch 2 with the watermark at 12:30."""
    lake = Lake(settings)
    for contract in contracts(HOURLY):
        lake.ensure(contract)
    Runs(lake, HOURLY).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
    record = {"at": at(13, 30), "city": "Oslo", "price": 3, "_epoch": 2}
    append(lake, "rides", [record, record | {"at": at(9)}], {"epoch": "2"})
    said = {
        "epoch": "2",
        "watermark": str(instant(at(12, 30))),
        "processing_time": str(instant(at(14))),
        "generation": "1",
        "fingerprint": HOURLY.fingerprint,
        "token": "4",
    }
    append(lake, ledger_contract(HOURLY).table, LEDGER, said)
    answers = [row for row in LEDGER[1:5] if not row.get("retraction")]
    append(lake, answer_contract(HOURLY).table, answers, {"epoch": "1"})
    return lake


def append(lake: Lake, table: str, rows: Iterable[Mapping[str, Any]], said: Mapping[str, str]) -> None:
    """Commit rows to a table; their columns may be only some of the table's."""
    lake.enter(table, list(rows), said, lake.head(table).snapshot)
