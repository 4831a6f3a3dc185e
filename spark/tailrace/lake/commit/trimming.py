"""Keep the number of a table's snapshots down while a stream runs, whether or not anybody maintains the table.

The cost of a commit grows with the snapshots in the table's metadata. So between two epochs the oldest are removed;
their properties are archived first (rule X3). Only the metadata is written: the files stay for readers who have begun,
and maintenance deletes them.
"""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.archive import archive
from tailrace.lake.commit.readers import STAMP, needed_of
from tailrace.lake.commit.retention import surplus
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition

LEFT = 5
"""Trimming leaves one in so many of the most snapshots that a table may have."""


class Trimming:
    """The trimming of one table by its writer.

    `readers` are the tables whose last commits say up to which snapshot they have read this one, each with the property
    that says so; `archived` says that this table's commits are wanted when their snapshots are gone.
    """

    def __init__(self, lake: Lake, table: str, *readers: tuple[str, str], archived: bool = True) -> None:
        self.lake, self.table, self.readers, self.archived = lake, table, readers, archived
        self.most = lake.settings.most_snapshots
        self._room = 0

    def after_commit(self) -> bool:
        """Trim the table if it has too many snapshots; return whether it was trimmed. Called after each commit."""
        self._room -= 1
        if self._room > 0:
            return False
        loaded = self.lake.table(self.table)
        self._room = self.most - len(loaded.metadata.snapshots)
        if self._room > 0:
            return False
        # Where branches and tags hold too many snapshots, trimming is not tried at each commit.
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
    """Return the trimming of a definition's ledger, which the table of its answers follows, where it has one."""
    answers = tables_of(definition).answers
    return Trimming(lake, ledger_name(definition.name), *([] if answers is None else [(answers.table, STAMP)]))
