"""The texts of an epoch of a pipeline, composed once: an engine runs them, and `tailrace explain` shows them."""

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
"""The relations that the texts read; an engine names each."""


class EpochTexts:
    """The texts of one pipeline over relations with an engine's names, `VIEWS`.

    DuckDB, which is `in_process`, takes only the touched windows through the rules, and plans several small queries
    sooner than one large one. Spark takes all windows that it is given, in few queries.
    """

    def __init__(self, pipeline: Pipeline, names: Mapping[str, Relation], *, in_process: bool) -> None:
        self.pipeline, self.names, self.in_process = pipeline, names, in_process
        self.rows = Rows(pipeline)

    @cached_property
    def partials(self) -> Query:
        """The query of the bundle's partials: a row for each key and window."""
        return partials(self.pipeline, self.names["bundle"], self.names["clock"], by_slices=self.in_process)

    def touched(self, *, by_key: bool) -> Query:
        """Write the query of the open windows that a record or the clock touches."""
        names = self.names
        return touched_windows(self.pipeline, names["state"], names["clock"], names["partials"], by_key=by_key)

    @cached_property
    def transitions(self) -> Query:
        """The query of each window after the epoch, with the panes that it fires on the way."""
        state = self.names["touched" if self.in_process else "state"]
        both = meeting_windows(
            self.pipeline, state, self.names["partials"], self.names["clock"], joined=self.in_process
        )
        return transitions(self.pipeline, both)

    @cached_property
    def ledger(self) -> list[Query]:
        """The queries of the ledger's rows: of partials, and of panes with retractions; or one query of them all."""
        if self.in_process:
            return self.rows.apart(self.names["transitions"])
        return [self.rows.of_transitions(self.names["transitions"])]

    @cached_property
    def late(self) -> Query:
        """The query of the ledger's rows of records that came too late."""
        bundle, clock = self.names["bundle"], self.names["clock"]
        source = may_have_passed(self.pipeline, bundle, clock) if self.in_process else bundle
        return self.rows.of_late(late_records(self.pipeline, source, clock))

    @cached_property
    def refused(self) -> Query | None:
        """The query of the ledger's rows of records that came to a finished trigger; None where no trigger refuses."""
        if self.pipeline.finishing != "close":
            return None
        names = self.names
        return self.rows.of_late(refused_records(self.pipeline, names["bundle"], names["clock"], names["transitions"]))

    @cached_property
    def remaining(self) -> Query:
        """The query of the open windows after the epoch."""
        return self.rows.state(self.names["transitions"])
