"""The SQL queries for a pipeline's epochs; engines run these queries, and `tailrace explain` shows the queries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.epoch.partials import late_records, may_have_passed, partials, refused_records
from tailrace.sql.epoch.state_merge import meeting_windows
from tailrace.sql.epoch.touched_windows import touched_windows
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.terms import Query, Relation

VIEWS = ("bundle", "clock", "state", "touched", "partials", "transitions")
"""The relations that the queries read. An engine chooses a name for each relation."""


class EpochTexts:
    """The queries of one pipeline's epochs, over relations (`VIEWS`) that the engine has named.

    On DuckDB (`in_process`), the rules are applied only to touched windows, which a record or the clock may change. The
    work is split into several small queries, which DuckDB plans faster than one large query. On Spark, a few large
    queries apply the rules to all windows of the given state.
    """

    def __init__(self, pipeline: Pipeline, names: Mapping[str, Relation], *, in_process: bool) -> None:
        self.pipeline, self.names, self.in_process = pipeline, names, in_process
        self.rows = Rows(pipeline)

    @cached_property
    def partials(self) -> Query:
        """The query for the bundle's partials: for each key and window, one row with the accumulator of the bundle's
        records.
        """
        return partials(self.pipeline, self.names["bundle"], self.names["clock"], by_slices=self.in_process)

    def touched(self, *, by_key: bool) -> Query:
        """Return the query for the open windows that a record touches or that the clock changes.

        With `by_key`, a record touches all windows of its key. Otherwise, a record touches only the windows that
        contain it.
        """
        names = self.names
        return touched_windows(self.pipeline, names["state"], names["clock"], names["partials"], by_key=by_key)

    @cached_property
    def transitions(self) -> Query:
        """The query for the transitions: each window's state after the epoch, and the panes that it fires."""
        state = self.names["touched" if self.in_process else "state"]
        both = meeting_windows(
            self.pipeline, state, self.names["partials"], self.names["clock"], joined=self.in_process
        )
        return transitions(self.pipeline, both)

    @cached_property
    def ledger(self) -> list[Query]:
        """The queries for the ledger's rows.

        On DuckDB there are two queries: one for partials (the states of open windows), and one for panes and
        retractions. On Spark there is one query for all rows.
        """
        if self.in_process:
            return self.rows.apart(self.names["transitions"])
        return [self.rows.of_transitions(self.names["transitions"])]

    @cached_property
    def late(self) -> Query:
        """The query for the ledger's rows about records that arrived too late."""
        bundle, clock = self.names["bundle"], self.names["clock"]
        source = may_have_passed(self.pipeline, bundle, clock) if self.in_process else bundle
        return self.rows.of_late(late_records(self.pipeline, source, clock))

    @cached_property
    def refused(self) -> Query | None:
        """The query for the ledger's rows about records that were refused because the trigger of their window has
        finished.

        The value is None if this pipeline accepts records for a window whose trigger has finished.
        """
        if self.pipeline.finishing != "close":
            return None
        names = self.names
        return self.rows.of_late(refused_records(self.pipeline, names["bundle"], names["clock"], names["transitions"]))

    @cached_property
    def remaining(self) -> Query:
        """The query for the windows that are open after the epoch."""
        return self.rows.state(self.names["transitions"])
