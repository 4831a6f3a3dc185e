"""A running stream keeps the number of a table's snapshots down by itself, whether or not anybody maintains it.

What a commit costs grows with the snapshots in the table's metadata. So between two epochs the oldest are taken out;
what they say is archived first (rule X3). Only the metadata is written: the files stay for readers who have begun, and
are maintenance's to delete.
"""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.archive import archive
from tailrace.lake.commit.readers import STAMP, needed_of
from tailrace.lake.commit.retention import surplus
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import Definition
from tailrace.model.definition.pipeline import Pipeline

LEFT = 5
"""Into how many parts the snapshots are cut of which one is left."""


class Trimming:
    """The trimming of one table by its writer.

    `readers` are those whose last commits say up to which snapshot they have read it, each with the property that says
    so; `archived` says that its commits are wanted when their snapshots are gone.
    """

    def __init__(self, lake: Lake, table: str, *readers: tuple[str, str], archived: bool = True) -> None:
        self.lake, self.table, self.readers, self.archived = lake, table, readers, archived
        self.most = lake.settings.most_snapshots
        self._room = 0

    def after_commit(self) -> bool:
        """Called after each commit of the writer's: trims if there are too many by then; gives whether it has."""
        self._room -= 1
        if self._room > 0:
            return False
        loaded = self.lake.table(self.table)
        self._room = self.most - len(loaded.metadata.snapshots)
        if self._room > 0:
            return False
        # Where names hold on to more than the most, it is not tried at each commit.
        self._room = max(1, self.most // LEFT)
        needed = [one for reader, named in self.readers for one in needed_of(self.lake, reader, named)]
        going = surplus(loaded, self._room, needed)
        if self.archived:
            archive(self.lake, self.table, going.cut)
        try:
            self.lake.forget(self.table, going.removed)
        except MovedError:
            # Others commit too often just now. What is archived is not archived again.
            return False
        return True


def ledger_trimming(lake: Lake, definition: Definition) -> Trimming:
    """The trimming of a definition's ledger, which table `p` follows where it has one."""
    readers = [(definition.name, STAMP)] if isinstance(definition, Pipeline) else []
    return Trimming(lake, ledger_name(definition.name), *readers)
