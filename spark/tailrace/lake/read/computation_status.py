"""The status of a computation, read from its ledger without a JVM. Instants are microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.commit.epoch_properties import ENGINE
from tailrace.lake.read.pipeline_status import LogStatus, log_status
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.computation import Computation


@dataclass(frozen=True)
class ComputationStatus:
    """A computation as its ledger has it; `epoch` is -1 before the first.

    `onward` is the watermark of the productions' readers, which trails the computation's where a timer holds it back.
    `keys` counts the keys that are not gone, `timers` their pending timers, and `next` is when the first timer in event
    time is due. `claimed` counts the productions that another had claimed, and `in_flight` the records that the last
    epoch fed back, None without a loop. `engine` says which engine folded the last epoch, and why it was taken.
    """

    computation: str
    epoch: int
    watermark: int
    onward: int
    processing_time: int | None
    token: int
    productions: int
    claimed: int
    late: int
    rejected: int
    keys: int
    timers: int
    next: int | None
    in_flight: int | None
    same_definition: bool
    engine: str | None
    logs: tuple[LogStatus, ...]


def computation_status(lake: Lake, computation: Computation) -> ComputationStatus | None:
    """Read the status of a computation; None where no stream has made its ledger yet."""
    name = ledger_name(computation.name)
    if not lake.has(name):
        return None
    ledger = lake.table(name)
    head = head_of(ledger)
    counts = {
        kind: ledger.scan(row_filter=equal("kind", kind)).count() for kind in (PRODUCTION, CLAIMED, LATE, REJECTED)
    }
    same = head.properties.get("fingerprint") == computation.fingerprint
    keys = [one for one in computation.key if one in ledger.schema().column_names]
    rows = ledger.scan(row_filter=equal("kind", PARTIAL), selected_fields=(*keys, "epoch", "gone", "timers")).to_arrow()
    pending = [timers for gone, timers in _latest(rows, keys) if not gone]
    due = [instant(timer["at"]) for timers in pending for timer in timers if timer["domain"] == "event"]
    properties = head.properties
    return ComputationStatus(
        computation=computation.name,
        epoch=head.number("epoch"),
        watermark=head.number("watermark", BEGINNING),
        onward=head.number("onward", BEGINNING),
        processing_time=int(properties["processing_time"]) if "processing_time" in properties else None,
        token=head.number("token", 0),
        productions=counts[PRODUCTION],
        claimed=counts[CLAIMED],
        late=counts[LATE],
        rejected=counts[REJECTED],
        keys=len(pending),
        timers=sum(map(len, pending)),
        next=min(due, default=None),
        in_flight=_in_flight(ledger, head.number("epoch")) if computation.loops else None,
        same_definition=same,
        engine=properties.get(ENGINE),
        logs=tuple(log_status(lake, log.name, log) for log in computation.sources if lake.has(log.name)),
    )


def _in_flight(ledger: Table, epoch: int) -> int:
    return int(ledger.scan(row_filter=every(equal("kind", FEEDBACK), equal("epoch", epoch))).count())


def _latest(partials: pa.Table, keys: list[str]) -> list[tuple[bool, list[dict[str, Any]]]]:
    """List for each key whether it is gone, and its timers, by its latest partial."""
    ordered = partials.sort_by("epoch")
    numbered = ordered.append_column("_place", pa.array(range(len(ordered)), pa.int64()))
    last = numbered.group_by(keys).aggregate([("_place", "max")])["_place_max"]
    rows = ordered.take(last.drop_null()).select(["gone", "timers"]).to_pylist()
    return [(row["gone"], row["timers"]) for row in rows]
