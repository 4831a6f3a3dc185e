"""Find the table with a pipeline's current answers, and run the work before and after each merge into this table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import settle
from tailrace.lake.commit.answers_merge import Following, Unfollowed
from tailrace.lake.commit.trimming import Trimming
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.filters import EVERYTHING, Filter, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.upkeep.compaction import SmallFiles, TableCompaction
from tailrace.model.definition.pipeline import Pipeline


class AnswersFollowing(Following):
    """The follower that merges the changes in a pipeline's ledger into the pipeline's table of answers.

    The follower checks the pipeline's definition before each merge, and trims the snapshots of the table of answers
    after each merge. If the pipeline has no table of answers, nothing is merged, and the follower reports that it has
    reached the ledger's last snapshot.
    """

    lake: Lake

    def __init__(self, lake: Lake, pipeline: Pipeline, owner: str) -> None:
        super().__init__(lake, pipeline.name, owner)
        self.pipeline = pipeline
        self.trimming = Trimming(lake, self.name, archived=False)
        least = lake.settings.small_files
        self.compaction = TableCompaction(lake, self.name, SmallFiles(least), room=least) if least > 1 else None

    def follow(self, *, fresh: int | None = None, files: Sequence[Any] = ()) -> int:
        if self.lake.has(self.name):
            return super().follow(fresh=fresh, files=files)
        check_definition(self.lake, self.pipeline)
        return Unfollowed(self.lake, self.name).follow()

    def close(self) -> None:
        if self.lake.has(self.name):
            super().close()

    def after_merge(self) -> None:
        self.trimming.after_commit()
        # The compaction runs in the same thread as the merges. Each merge starts from the table's latest snapshot, so a
        # compaction does not disturb the next merge.
        if self.compaction is not None and self.compaction.is_due() and (change := self.compaction.prepare()):
            self.compaction.commit(change)

    def begin(self) -> None:
        """Check the definition, and give the table of answers the ledger's current generation.

        Raises `OtherDefinitionError` if the ledger's current generation is of a definition that computes something
        else.
        """
        check_definition(self.lake, self.pipeline)
        # The ledger may already have a new generation while the table of answers still has the old generation's
        # answers.
        settle(self.lake, self.name)


def answers_source(lake: Lake, pipeline: Pipeline, where: Filter = EVERYTHING) -> tuple[str, Filter]:
    """Return the table from which a pipeline's answers are read, and a filter for the rows of this table.

    The filter selects the answers that match `where`. If the pipeline has no table of answers, its answers are read
    from the panes in the ledger table.
    """
    if lake.has(pipeline.name):
        return pipeline.name, where
    panes = equal("kind", PANE)
    return ledger_name(pipeline.name), panes if where is EVERYTHING else every(panes, where)
