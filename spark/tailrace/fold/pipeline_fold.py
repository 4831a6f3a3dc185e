"""Fold a pipeline in a stream: keep its open windows, and update the table of answers from its ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tailrace.fold.follower_pace import Trailing
from tailrace.fold.ledger_fold import FoldSetup, LedgerFold
from tailrace.lake.change.generations import GENERATION, generation_of, settle
from tailrace.lake.schema.lake_errors import LentError, OtherDefinitionError
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.pipeline import Pipeline


class PipelineFold(LedgerFold):
    """The running fold of one stage, together with the table of answers that is updated from the stage's ledger.

    The table of answers is created only if the user wants one. A table that already exists is updated in any case.
    """

    def __init__(self, pipeline: Pipeline, setup: FoldSetup) -> None:
        self.pipeline, self.trailing = pipeline, Trailing(pipeline.name, setup.pace)
        self._answers = pipeline.name in setup.answered
        super().__init__(pipeline, setup)
        engine = setup.engines.duck if self.side.direct else setup.engines.spark
        self.follower = engine.follower(pipeline, f"stream_{self.lease.token}")

    def _ensure(self) -> None:
        lake, pipeline = self.lake, self.pipeline
        self._begun(pipeline)
        there = lake.has(pipeline.name)
        if self._answers and not there:
            made = answer_contract(pipeline)
            generation = str(generation_of(lake.table(ledger_name(pipeline.name))))
            lake.ensure(replace(made, properties={**made.properties, GENERATION: generation}))
        self._answers = self._answers or there
        settle(lake, pipeline.name)

    def publish(self) -> bool:
        staged, done = self._staged, super().publish()
        if staged is not None and done:
            self.trailing.published()
        return done

    def due(self) -> int | None:
        """Return the next processing time, in microseconds, at which an open window may fire without a record.

        At the returned time, the step decides whether the window fires. Returns None if there is no such time.
        """
        periods, delays = self.pipeline.when.periods(), self.pipeline.when.delays()
        if not (periods or delays or self.pipeline.by_arrival):
            return None
        try:
            self.lease.check()
        except LentError:
            self.anew()
        if self._due is None or self._due[0] is not self.state:
            # The time at which a window may fire depends only on the state, so the time remains valid until the next
            # epoch.
            self._due = self.state, self.side.due(self.state, periods, delays)
        return self._due[1]

    def update(self) -> Callable[[], None] | None:
        """Return the update of the answers if it should start now. The caller has to run the update."""
        return partial(self._follow, self.trailing.epochs) if self._answers and self.trailing.asks() else None

    @property
    def waits(self) -> bool:
        """Whether the answers are so far behind that the stream has to wait for an update."""
        return self._answers and self.trailing.waits()

    def follow_now(self) -> None:
        """Update the answers from the ledger."""
        self.follower.follow()

    def close(self) -> None:
        """Update the answers from the ledger, and remove the branches that the fold used."""
        self.follower.follow()
        self.follower.close()
        super().close()

    def leave(self) -> None:
        self.follower.close()
        super().leave()

    def _follow(self, epochs: int) -> None:
        # The error is ignored here: if another definition has taken over the ledger in the meantime, the next
        # publication fails with its own error.
        with self.trailing.following(epochs), suppress(OtherDefinitionError):
            self.follower.follow()
