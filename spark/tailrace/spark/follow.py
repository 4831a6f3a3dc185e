"""Table `p` follows the ledger: a MERGE by version of the panes since the snapshot that `p` is stamped with.

Streams and backfills both do just this, so there is one way in which `p` changes. It is safe to do at any time and any
number of times: only a higher version changes a row, and a follower that another overtook publishes nothing (X2, V1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog import Head, Lake, head_of, lineage
from tailrace.lake.contracts import PANE
from tailrace.lake.errors import MovedError
from tailrace.lake.publish import Branch
from tailrace.model.pipeline import Pipeline
from tailrace.spark.algebra import quoted
from tailrace.spark.partials import listed, names

STAMP = "ledger_snapshot"


@dataclass
class Follower:
    """Keeps `p` of one pipeline up with its ledger, on a branch of its own."""

    spark: SparkSession
    lake: Lake
    pipeline: Pipeline
    owner: str

    def __post_init__(self) -> None:
        self.branch = Branch(self.lake, self.pipeline.name, f"follow_{self.owner}")
        self._head: Head | None = None

    def follow(self) -> int:
        """Merge what the ledger has gained; gives the ledger's snapshot that `p` now stands for."""
        while True:
            head = self._head or self.branch.start()
            ledger = self.lake.table(f"{self.pipeline.name}__ledger")
            reached = head_of(ledger)
            stamped = head.said.get(STAMP)
            if reached.snapshot is None or stamped == str(reached.snapshot):
                return int(stamped or -1)
            stamp = {STAMP: str(reached.snapshot), "epoch": str(reached.number("epoch"))}
            known = {snapshot.snapshot_id for snapshot in lineage(ledger, reached.snapshot)}
            since = int(stamped) if stamped and int(stamped) in known else None
            self._merge(self._panes(since, reached.snapshot), stamp, empty=head.snapshot is None)
            try:
                snapshot = self.branch.publish()
            except MovedError:
                self._head = None
                continue
            self._head = Head(snapshot, stamp)
            return reached.snapshot

    def close(self) -> None:
        """Remove the branch."""
        self.branch.drop()

    def _panes(self, since: int | None, until: int) -> DataFrame:
        table = self.lake.spark_name(f"{self.pipeline.name}__ledger").replace("`", "")
        reader = self.spark.read.format("iceberg")
        if since is None:
            reader = reader.option("versionAsOf", until)
        else:
            reader = reader.option("start-snapshot-id", since).option("end-snapshot-id", until)
        return reader.load(table).where(f"kind = '{PANE}'")

    def _merge(self, panes: DataFrame, stamp: Mapping[str, Any], *, empty: bool) -> None:
        view = f"tailrace_follow_{self.pipeline.name}_{self.owner}"
        panes.createOrReplaceTempView(view)
        names_ = [*names(self.pipeline), "window_start", "window_end"]
        results = [quoted(name) for name in self.pipeline.results]
        shown = {name: f"answer.{name}" if self.pipeline.how.value == "discarding" else name for name in results}
        carried = [f"{shown[name]} AS {name}" for name in results] + ["timing", *_VERSION, "retraction"]
        order = ", ".join(f"{name} DESC" for name in _VERSION) + ", retraction"
        ranked = (
            f"SELECT {listed(names_, carried)}, ROW_NUMBER() OVER (PARTITION BY {listed(names_)} ORDER BY {order}) "
            f"AS place FROM {view}"
        )
        columns = [*names_, *results, "timing", *_VERSION]
        on = " AND ".join([f"t.{n} <=> s.{n}" for n in names(self.pipeline)] + [f"t.{n} = s.{n}" for n in _SPAN])
        newer = " OR ".join(
            "(" + " AND ".join([*(f"s.{n} = t.{n}" for n in _VERSION[:place]), f"s.{_VERSION[place]} > t.{_VERSION[place]}"]) + ")"
            for place in range(3)
        )
        sets = ", ".join(f"t.{n} = s.{n}" for n in [*results, "timing", *_VERSION])
        for name, value in stamp.items():
            self.spark.conf.set(f"spark.sql.iceberg.snapshot-property.tailrace.{name}", str(value))
        self.spark.sql(
            f"MERGE INTO {self.branch.target} t USING (SELECT * FROM ({ranked}) WHERE place = 1) s ON {on} "
            f"WHEN MATCHED AND ({newer}) AND s.retraction THEN DELETE "
            f"WHEN MATCHED AND ({newer}) THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s.retraction THEN INSERT ({listed(columns)}) "
            f"VALUES ({', '.join(f's.{n}' for n in columns)})"
        )


_VERSION = ("generation", "epoch", "pane_index")
_SPAN = ("window_start", "window_end")
