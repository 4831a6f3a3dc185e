"""What every follower of a pipeline's table `p` does around a merge, whichever engine merges."""

from __future__ import annotations

from tailrace.lake.catalog import Lake
from tailrace.lake.drift import check_definition
from tailrace.lake.following import Following
from tailrace.lake.generations import settle
from tailrace.lake.trimming import Trimming
from tailrace.model.pipeline import Pipeline


class AnswersFollowing(Following):
    """Follow the ledger of one pipeline in a lake: who still may is looked at before, snapshots are trimmed after."""

    lake: Lake

    def __init__(self, lake: Lake, pipeline: Pipeline, owner: str, *, direct: bool = False) -> None:
        super().__init__(lake, pipeline.name, owner, direct=direct)
        self.pipeline = pipeline
        self.trimming = Trimming(lake, self.name, archived=False)

    def followed(self) -> None:
        self.trimming.after_commit()

    def begin(self) -> None:
        """Raises `OtherDefinitionError` where the ledger has gone over to a definition with another meaning."""
        check_definition(self.lake, self.pipeline)
        # The ledger may have gone over to another generation, and `p` not yet.
        settle(self.lake, self.name)
