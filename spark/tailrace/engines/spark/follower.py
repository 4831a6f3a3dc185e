"""Update the table of answers from the ledger of a fold or run on Spark (`tailrace.lake.commit.answers_merge`).

This process makes small updates itself, in the same way as for folds on DuckDB. A large update is a MERGE statement on
Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property

import duckdb
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.spark.rows.branch_rows import as_of_snapshot, beside_others
from tailrace.engines.spark.session import open_session
from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.read.current_answers import AnswersFollowing
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import END_OF_TIME, duration, hours
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.results.answers import latest_answers, pane_answers
from tailrace.sql.terms import Condition, Relation, quoted

_HOUR = duration(hours(1))


class Follower(AnswersFollowing):
    """The follower that updates the answers of one pipeline from the pipeline's ledger."""

    def __init__(self, lake: Lake, pipeline: Pipeline, owner: str, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(lake, pipeline, owner)
        self._here = ProcessFollower(connection, lake, pipeline, owner)
        self._here.branch = self.branch

    @cached_property
    def spark(self) -> SparkSession:
        """The follower's own Spark session.

        A MERGE statement takes the properties of the new snapshot from this session's settings.
        """
        return open_session(self.lake.settings)

    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        """Merge the panes that the ledger gained between two snapshots into the table of answers.

        If the table has no answers yet for the windows of these panes, the new answers are only appended. The result is
        the same as the result of a MERGE statement.
        """
        if self._here.small(since, until, fresh=fresh, empty=empty):
            with suppress(duckdb.OutOfMemoryException):
                self._here.merge(since, until, stamp, fresh=fresh, empty=empty)
                return
        self._stamped(stamp)
        view = Relation(f"tailrace_follow_{self.name}_{self.owner}")
        self._panes(since, until).createOrReplaceTempView(view)
        try:
            self._merge(view, fresh=fresh, empty=empty)
        except PySparkException as error:
            # The statement may have failed because another process replaced the answers with answers of another
            # generation, which has other columns. If the table has changed, raise `MovedError` instead of Spark's
            # error.
            if self.lake.head(self.name).snapshot == self.branch.base:
                raise
            raise MovedError(f"{self.name} was moved while it was merged into") from error

    def _merge(self, view: Relation, *, fresh: bool, empty: bool) -> None:
        keys = key_names(self.pipeline)
        results = [quoted(name) for name in self.pipeline.answer_columns]
        columns = [*keys, *SPAN, *results, "timing", *VERSION]
        span = None if fresh or empty else self._span(view)
        if span is None:
            rows = pane_answers(self.pipeline, view) if fresh else latest_answers(self.pipeline, view)
            insert = f"INSERT INTO {self.branch.open_for_spark()} ({join_items(columns)})"
            text = f"{insert} SELECT {join_items(columns)} FROM ({rows}) WHERE NOT retraction"
            beside_others(lambda: self.spark.sql(text))
            return
        on = " AND ".join([*(f"t.{n} <=> s.{n}" for n in keys), *(f"t.{n} = s.{n}" for n in SPAN), span])
        sets = ", ".join(f"t.{n} = s.{n}" for n in [*results, "timing", *VERSION])
        merged = (
            f"MERGE INTO {self.branch.open_for_spark()} t "
            f"USING ({latest_answers(self.pipeline, view)}) s ON {on} "
            f"WHEN MATCHED AND ({_NEWER}) AND s.retraction THEN DELETE "
            f"WHEN MATCHED AND ({_NEWER}) THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s.retraction THEN INSERT ({join_items(columns)}) "
            f"VALUES ({', '.join(f's.{n}' for n in columns)})"
        )
        beside_others(lambda: self.spark.sql(merged))

    def _span(self, view: Relation) -> Condition | None:
        """Return a condition that limits a MERGE to the range of the panes' window ends, or None if there are no panes.

        The MERGE skips files outside the range. The ends of the range are rounded to whole hours, so that they seldom
        change: whenever the range changes, Spark has to compile the MERGE again.
        """
        ends = ", ".join(f"UNIX_MICROS({end}(window_end))" for end in ("MIN", "MAX"))
        ((low, high),) = self.spark.sql(f"SELECT {ends} FROM {view}").collect()
        if low is None:
            return None
        low, high = low - low % _HOUR, min(high - high % _HOUR + _HOUR, END_OF_TIME)
        return Condition(f"t.window_end >= TIMESTAMP_MICROS({low}L) AND t.window_end <= TIMESTAMP_MICROS({high}L)")

    def _panes(self, since: int | None, until: int) -> DataFrame:
        ledger = ledger_name(self.pipeline.name)
        if since is None:
            rows = as_of_snapshot(self.spark, self.lake, ledger, until)
        else:
            reader = self.spark.read.format("iceberg").option("start-snapshot-id", since)
            rows = reader.option("end-snapshot-id", until).load(self.lake.identifier(ledger))
        return rows.where(f"kind = '{PANE}'")

    def _stamped(self, stamp: Mapping[str, str]) -> None:
        for name, value in stamp.items():
            self.spark.conf.set(f"spark.sql.iceberg.snapshot-property.{PREFIX}{name}", value)


_NEWER = (
    "s.generation > t.generation OR (s.generation = t.generation AND (s.epoch > t.epoch OR "
    "(s.epoch = t.epoch AND s.pane_index > t.pane_index)))"
)
"""The SQL condition that the source row has a higher version than the target row.

The generations are compared first, then the epochs, then the pane indexes (rule V1).
"""
