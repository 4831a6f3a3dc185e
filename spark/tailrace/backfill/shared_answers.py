"""The answers of a definition's stages over a range of the log, each computed once for its own run and the next stage.

The records that are read are those that the last stage needs. They include the records that earlier stages need, for a
stage reaches as far back as the stage before it, and further by its own windows.
"""

from __future__ import annotations

from tailrace.backfill.range_records import records
from tailrace.engines.batch.batch_answers import Answering, answering
from tailrace.engines.session_protocol import Session
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.results.answers import in_range, whole
from tailrace.sql.terms import ALWAYS, Query, Relation, all_of


class Shared:
    """The answers of the stages up to `pipeline` over the range `[first, last)` of window timestamps, in microseconds.

    The answers of a stage are kept until `close`, if a later stage reads them.
    """

    def __init__(self, session: Session, pipeline: Pipeline, first: int, last: int) -> None:
        self.session, self.first, self.last = session, first, last
        self.ends = answering(session, pipeline.finished)
        self._relations: dict[tuple[str, int], Relation] = {}

    def answers(self, stage: Pipeline, epoch: int, first: int, last: int) -> Query:
        """Write the query of a stage's answers as of an epoch of the log; `[first, last)` lies in the whole range.

        Answers that a later stage reads are computed at the first call, and the process takes over what it can
        (`Answering.brought`).
        """
        one = self.ends
        while one.pipeline.name != stage.name:
            assert one.earlier is not None, f"{stage.name} is no stage up to {self.ends.pipeline.name}"
            one = one.earlier
        if one is self.ends:
            # Of windows that are wholly read or not at all, none is outside of the range.
            within = ALWAYS if whole(stage) else in_range(first, last)
            rows = self._read(one, epoch, first, last)
            return one.brought(rows, within)
        return Query(f"SELECT * FROM {self._all(one, epoch)} WHERE {in_range(first, last)}")

    def close(self) -> None:
        """Free the kept answers."""
        while self._relations:
            self.session.free(self._relations.popitem()[1])

    def _read(self, stage: Answering, epoch: int, first: int, last: int) -> Relation:
        """Write the query, in brackets, of a stage's records, as far as a range of the last stage needs them."""
        if stage.earlier is None:
            return records(self.ends, first, last, epoch)
        return stage.changed(all_of(self._all(stage.earlier, epoch)))

    def _all(self, stage: Answering, epoch: int) -> Relation:
        """Return a relation of all answers of a stage in the whole range, computed once for each epoch."""
        at = stage.pipeline.name, epoch
        if at not in self._relations:
            rows = self._read(stage, epoch, self.first, self.last)
            self._relations[at] = self.session.materialized(stage.brought(rows))
        return self._relations[at]
