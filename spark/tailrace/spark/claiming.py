"""What a computation produces is claimed before its epoch is written (`tailrace.model.once`; Photon's IdRegistry).

The claims are published first and the epoch after them, so what dies in between has claimed what is not in its ledger
yet. The epoch is then folded again, from the same state and the same records, finds those claims to be its own, and
counts them: what is its own and not in its ledger is still to come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import stamina
from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import CLAIMED, PRODUCTION
from tailrace.lake.errors import MovedError
from tailrace.lake.lease import Lease
from tailrace.lake.registry import Registry
from tailrace.model.computation import Computation
from tailrace.model.log import PANE_TIME
from tailrace.spark.computing import Computed
from tailrace.spark.execution import free
from tailrace.spark.preparing import queried
from tailrace.spark.writing import append, as_of_snapshot
from tailrace.sql.algebra import quoted
from tailrace.sql.changes import claimed_ids

SOONEST, LATEST = 0.05, 5.0
"""Seconds that one waits, at first and at most, who was overtaken by another claimant."""

_ID = ["id", PANE_TIME]
_PLACE = ["source_partition", "source_offset"]


@dataclass(frozen=True)
class _Wanted:
    """The ids of an epoch's productions, each with its places, and how many there are between which event times."""

    frame: DataFrame
    ids: int
    rows: int
    between: str


class Claiming:
    """The claims of one computation, whose ledger a lease is of."""

    def __init__(self, spark: SparkSession, lake: Lake, computation: Computation, lease: Lease) -> None:
        self.spark, self.lake, self.computation, self.lease = spark, lake, computation, lease
        self.registry = Registry(lake, computation, lease.token)
        self._held: list[DataFrame] = []

    def settled(self, computed: Computed, epoch: int) -> Computed:
        """An epoch of which what is another's is `claimed` in its ledger rows, and no production any more."""
        try:
            return self._settled(computed, epoch)
        finally:
            for frame in self._held:
                free(frame)
            self._held.clear()

    def close(self) -> None:
        """Let go of the registry."""
        self.registry.close()

    def _settled(self, computed: Computed, epoch: int) -> Computed:
        wanted = self._wanted(computed.rows)
        if not wanted.rows:
            return computed
        counting, all_count = self._counting(wanted, epoch)
        if all_count and wanted.ids == wanted.rows:
            return computed
        first = wanted.frame.where("place = 1").join(counting, _ID, "left_semi")
        left_out = wanted.frame.join(first, [*_ID, *_PLACE], "left_anti")
        marks = left_out.selectExpr(*_PLACE, f"'{PRODUCTION}' AS kind", "true AS left_out")
        kinds = {"kind": f"IF(left_out IS NULL, kind, '{CLAIMED}')"}
        names = [f"{kinds.get(name, quoted(name))} AS {quoted(name)}" for name in computed.rows.columns]
        rows = computed.rows.join(marks, ["kind", *_PLACE], "left").selectExpr(*names).localCheckpoint()
        return Computed(rows, replace(computed.keys, held=(*computed.keys.held, rows)))

    def _computed(self, frame: DataFrame) -> DataFrame:
        """A frame computed now, and kept until the epoch is settled."""
        self._held.append(frame.localCheckpoint())
        return self._held[-1]

    def _wanted(self, rows: DataFrame) -> _Wanted:
        frame = self._computed(queried(self.spark, rows, self._ids))
        terms = ("COUNT(*)", "COUNT_IF(place = 1)", f"MIN({PANE_TIME})", f"MAX({PANE_TIME})")
        (row,) = frame.selectExpr(*(f"CAST({term} AS STRING) AS t{n}" for n, term in enumerate(terms))).collect()
        between = f"{PANE_TIME} BETWEEN TIMESTAMP '{row['t2']}' AND TIMESTAMP '{row['t3']}'"
        return _Wanted(frame, int(row["t1"]), int(row["t0"]), between)

    def _ids(self, rows: str) -> str:
        """The productions that are to be claimed, and of those of one id the how many-th each is."""
        place = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(_ID)} ORDER BY {', '.join(_PLACE)}) AS place"
        return f"SELECT *, {place} FROM ({claimed_ids(self.computation, rows)})"

    def _counting(self, wanted: _Wanted, epoch: int) -> tuple[DataFrame, bool]:
        """The ids that count in this epoch, and whether those are all; those that are nobody's are claimed."""
        counting: DataFrame | None = None
        for attempt in stamina.retry_context(
            on=MovedError, attempts=None, timeout=None, wait_initial=SOONEST, wait_max=LATEST
        ):
            with attempt:
                counting = self._claimed(wanted, epoch)
        assert counting is not None
        (row,) = counting.selectExpr("COUNT(*) AS ids", "COUNT_IF(claimed) AS before").collect()
        if row["before"]:
            counting = self._computed(counting.join(self._counted(wanted), _ID, "left_anti"))
            return counting, counting.count() == wanted.ids
        return counting, row["ids"] == wanted.ids

    def _claimed(self, wanted: _Wanted, epoch: int) -> DataFrame:
        """The ids that are ours, and whether they were before. Raises `MovedError` where another claimed meanwhile."""
        registry, claimant = self.registry, f"'{self.registry.claimant}'"
        known = as_of_snapshot(self.spark, registry.lake, registry.table, registry.start()).where(wanted.between)
        asked = wanted.frame.where("place = 1").select(*_ID)
        answers = asked.join(known.select(*_ID, "claimant"), _ID, "left")
        ours = answers.where(f"claimant IS NULL OR claimant = {claimant}")
        ours = self._computed(ours.selectExpr(*_ID, "claimant IS NOT NULL AS claimed"))
        new = ours.where("NOT claimed")
        if not new.isEmpty():
            append(new.selectExpr(*_ID, f"{claimant} AS claimant", f"{epoch}L AS epoch"), registry.branch, {})
            registry.publish()
        return ours

    def _counted(self, wanted: _Wanted) -> DataFrame:
        """The ids of those event times that are in the ledger already."""
        ledger = as_of_snapshot(self.spark, self.lake, self.lease.table, self.lease.head.snapshot)
        rows = ledger.where(f"kind = '{PRODUCTION}' AND {wanted.between}")
        return queried(self.spark, rows, partial(claimed_ids, self.computation)).select(*_ID).distinct()
