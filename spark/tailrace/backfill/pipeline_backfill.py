"""The backfill of a pipeline with its stages: its closed windows, and its windows that are open to a stream (V4).

If the recomputed answer of a window differs, the old answer is retracted and the window fires again. If the log does
not yield a window any more, the window's answer is retracted. A window with an equal answer is left untouched. Windows
that a stream can still change are recomputed in a second run (`handover`, X4).
"""

from __future__ import annotations

from tailrace.backfill.handover import Handover, check_followers
from tailrace.backfill.range_answers import RangeAnswers
from tailrace.backfill.range_run import (
    Found,
    RangeBackfill,
    RangeRun,
    folded_head,
    found_new,
    version_as_of,
)
from tailrace.backfill.result import BackfillError
from tailrace.engines import log_records
from tailrace.engines.batch.held_answers import held_answers
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.answers_merge import Follows
from tailrace.lake.read.current_answers import answers_source
from tailrace.lake.schema.filters import Filter, after, every, up_to
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, text
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.window_spans import windows_between
from tailrace.sql.results.answers import answer_rows, current_answers, events_from, events_in, events_until, in_range
from tailrace.sql.results.backfill_rows import BackfillVersion, new_panes, pane_rows
from tailrace.sql.terms import Query


class PipelineBackfill(RangeBackfill[Pipeline]):
    """The backfill of all stages of a pipeline, or of its last stage alone.

    The answers of each stage are computed only once.
    """

    def check(self) -> None:
        super().check()
        for stage in self.stages:
            closed = stage.closed_until(folded_head(self.lake, stage).number("watermark"))
            if self.last <= closed:
                continue
            if self.alone and stage.earlier is not None:
                raise BackfillError(
                    f"windows up to {text(self.last)} are still open to the stream, and hold what {stage.name} has "
                    f"read of {stage.earlier.name}: backfill all stages, or pass a --to of at most {text(closed)}"
                )
            check_followers(self.lake, stage, self.last)

    def reads(self) -> list[tuple[str, Filter]]:
        since, until = (
            events_from(self.definition, min(self._firsts.values())),
            events_until(self.definition, self.last),
        )
        epoch = self.lake.head(ledger_name(self.definition.name)).number("epoch")
        return log_records.tables_of_log(self.lake, self.definition.stages[0].log, epoch, since, until)

    def runs(self, session: Session) -> list[tuple[Pipeline, list[RangeRun[Pipeline]]]]:
        answers = RangeAnswers(session, self.definition, min(self._firsts.values()), self.last)
        return [(stage, self._of_stage(session, stage, answers)) for stage in self.stages]

    @property
    def _firsts(self) -> dict[str, int]:
        """The start of each stage's range, early enough to include all windows that the next stage needs."""
        found, first = dict[str, int](), self.first
        for stage in reversed(self.stages):
            found[stage.name] = first
            if stage.earlier is not None and windows_between(stage.where, first, self.last):
                since = events_in(stage, first)
                first = BEGINNING if since is None else min(first, max(BEGINNING, since))
        return found

    def _of_stage(self, session: Session, stage: Pipeline, answers: RangeAnswers) -> list[RangeRun[Pipeline]]:
        """Return the runs for a stage: one run for the closed windows of its range, and one for the open windows.

        If the range has no closed windows, or no open windows, the run for these windows is left out.
        """
        pinned, first, last = folded_head(session.lake, stage), self._firsts[stage.name], self.last
        closed = stage.closed_until(pinned.number("watermark"))
        runs: list[RangeRun[Pipeline]] = []
        if first < closed:
            runs.append(ClosedWindows(session, stage, first, min(last, closed), pinned, answers))
        if last > closed:
            runs.append(Handover(session, stage, max(first, closed), last, pinned))
        return runs


class ClosedWindows(RangeRun[Pipeline]):
    """The backfill run for the windows that no stream can change any more."""

    def __init__(
        self, session: Session, pipeline: Pipeline, first: int, last: int, pinned: Head, answers: RangeAnswers
    ) -> None:
        super().__init__(session, pipeline, first, last, pinned)
        self.answers = answers

    def compute(self, run: Run, pinned: Head) -> Found:
        if self._anything_held():
            return self.differences(run, pinned)
        # If there are no answers in the range, every computed answer is new. So the panes are written without a
        # comparison, together with their answers, and are counted from the written files.
        new = self._new(pinned)
        files = self.session.new_panes(new_panes(self.definition, new, version_as_of(run, pinned)), self.definition)
        return self._counted(new) if files is None else found_new(*files, held=0)

    def differences(self, run: Run, pinned: Head) -> Found:
        if not self._anything_held():
            return self._counted(self._new(pinned))
        pipeline, answers = self.definition, answer_rows(self.definition.finished)
        held = current_answers(
            pipeline, held_answers(self.session, pipeline, self._within), in_range(self.first, self.last)
        )
        return self._counted(answers.differences(self._computed(pinned), held))

    def _computed(self, pinned: Head) -> Query:
        """Return the query that computes the range's answers from the log, up to the epoch of the pinned commit."""
        return self.answers.answers(self.definition, pinned.number("epoch"), self.first, self.last)

    def _new(self, pinned: Head) -> Query:
        """Return the query for the differences if the range has no answers."""
        return answer_rows(self.definition.finished).new(self._computed(pinned))

    def _counted(self, differences: Query) -> Found:
        return self.count_changes(differences, held="change <> 'new'")

    def rows(self, found: Found, written: BackfillVersion) -> Query:
        return pane_rows(self.definition, found.different, written)

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow(fresh=None if found.counts["held"] else snapshot, files=found.answers)

    def open_follower(self, owner: str) -> Follows:
        return self.session.follower(self.definition, owner)

    @property
    def _within(self) -> Filter:
        """The filter that selects the answers whose windows are in the range."""
        first, last = (max(BEGINNING, min(at, END_OF_TIME)) for at in (self.first, self.last))
        return every(after("window_end", first), up_to("window_end", last))

    def _anything_held(self) -> bool:
        """Return True if there may be answers in the range, according to the statistics of the answers' files."""
        table, within = answers_source(self.lake, self.definition, self._within)
        return any(True for _ in self.lake.table(table).scan(row_filter=within).plan_files())
