"""Table `p` follows the ledger: a MERGE by version of the panes since the snapshot that `p` is stamped with.

Streams and backfills both do just this, so there is one way in which `p` changes. It is safe to do at any time and any
number of times: only a higher version changes a row, and a follower that another overtook publishes nothing (X2, V1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.lake.catalog import PREFIX, Head, Lake, head_of, lineage
from tailrace.lake.contracts import PANE
from tailrace.lake.errors import MovedError, OtherDefinitionError
from tailrace.lake.generations import STAMP, settle
from tailrace.lake.notices import Followed
from tailrace.lake.publish import Branch
from tailrace.model.pipeline import Pipeline
from tailrace.spark.algebra import quoted
from tailrace.spark.answers import SPAN, VERSION, latest, told
from tailrace.spark.assigning import listed, names
from tailrace.spark.session import open_session


@dataclass
class Follower:
    """Keeps `p` of one pipeline up with its ledger, on a branch of its own."""

    lake: Lake
    pipeline: Pipeline
    owner: str

    def __post_init__(self) -> None:
        # A session of its own: MERGE takes its snapshot's properties from the session, and others have theirs.
        self.spark = open_session(self.lake.settings)
        self.branch = Branch(self.lake, self.pipeline.name, f"follow_{self.owner}")
        self._head: Head | None = None

    def follow(self, *, fresh: int | None = None) -> int:
        """Merge what the ledger has gained; gives the ledger's snapshot that `p` now stands for.

        `fresh` is a snapshot of the ledger whose windows `p` has no row of: if it is all there is to merge, its rows
        are appended, which is the same and cheaper.
        """
        head, snapshot = self._followed(fresh)
        self.lake.tell(Followed(self.pipeline.name, head.number("epoch")))
        return snapshot

    def _followed(self, fresh: int | None) -> tuple[Head, int]:
        """Where `p` stands then, and the ledger's snapshot that it stands for."""
        while True:
            ledger = self.lake.table(f"{self.pipeline.name}__ledger")
            reached = head_of(ledger)
            self._check(reached)
            if self._head is None:
                # The ledger may have gone over to another generation, and `p` not yet.
                settle(self.lake, self.pipeline.name)
            head = self._head or self.branch.start()
            stamped = head.said.get(STAMP)
            if reached.snapshot is None or stamped == str(reached.snapshot):
                return head, int(stamped or -1)
            stamp = {STAMP: str(reached.snapshot), "epoch": str(reached.number("epoch"))}
            known = {snapshot.snapshot_id for snapshot in lineage(ledger, reached.snapshot)}
            since = int(stamped) if stamped and int(stamped) in known else None
            gained = [s.snapshot_id for s in lineage(ledger, reached.snapshot)]
            only = since is not None and gained[:2] == [fresh, since]
            self._stamped(stamp)
            try:
                self._merge(self._panes(since, reached.snapshot), fresh=only, empty=head.records == 0)
                snapshot = self.branch.publish()
            except MovedError:
                self._head = None
                continue
            except PySparkException:
                # `p` may have gone over to another generation, and have other columns.
                if self.lake.head(self.pipeline.name).snapshot == self.branch.base:
                    raise
                self._head = None
                continue
            self._head = Head(snapshot, stamp)
            return self._head, reached.snapshot

    def _check(self, reached: Head) -> None:
        """Raises `OtherDefinitionError` where the ledger has gone over to a definition with another meaning."""
        found = reached.said.get("fingerprint", self.pipeline.fingerprint)
        if found != self.pipeline.fingerprint:
            raise OtherDefinitionError(
                f"{self.pipeline.name}__ledger has gone over to generation {reached.number('generation')} of another "
                f"meaning (fingerprint {found}, this one has {self.pipeline.fingerprint}): start again with the "
                "changed definition"
            )

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

    def _stamped(self, stamp: Mapping[str, str]) -> None:
        for name, value in stamp.items():
            self.spark.conf.set(f"spark.sql.iceberg.snapshot-property.{PREFIX}{name}", value)

    def _merge(self, panes: DataFrame, *, fresh: bool, empty: bool) -> None:
        """Merge panes into `p`. Where it has no row that they could meet they are appended, which is the same.

        Panes that are `fresh` have no retractions and are one to a window; `empty` says that `p` has no row at all.
        """
        view = f"tailrace_follow_{self.pipeline.name}_{self.owner}"
        panes.createOrReplaceTempView(view)
        keys = names(self.pipeline)
        results = [quoted(name) for name in self.pipeline.results]
        columns = [*keys, *SPAN, *results, "timing", *VERSION]
        if fresh or empty:
            rows = told(self.pipeline, view) if fresh else latest(self.pipeline, view)
            insert = f"INSERT INTO {self.branch.target} ({listed(columns)})"
            self.spark.sql(f"{insert} SELECT {listed(columns)} FROM ({rows}) WHERE NOT retraction")
            return
        on = " AND ".join([*(f"t.{n} <=> s.{n}" for n in keys), *(f"t.{n} = s.{n}" for n in SPAN)])
        sets = ", ".join(f"t.{n} = s.{n}" for n in [*results, "timing", *VERSION])
        self.spark.sql(
            f"MERGE INTO {self.branch.target} t "
            f"USING ({latest(self.pipeline, view)}) s ON {on} "
            f"WHEN MATCHED AND ({_NEWER}) AND s.retraction THEN DELETE "
            f"WHEN MATCHED AND ({_NEWER}) THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s.retraction THEN INSERT ({listed(columns)}) "
            f"VALUES ({', '.join(f's.{n}' for n in columns)})"
        )


_NEWER = (
    "s.generation > t.generation OR (s.generation = t.generation AND (s.epoch > t.epoch OR "
    "(s.epoch = t.epoch AND s.pane_index > t.pane_index)))"
)
"""Whether the source's version is higher, its parts compared in order (rule V1)."""
