"""Limit the number of a table's snapshots while a stream runs, even if no maintenance is run on the table.

The cost of a commit grows with the number of snapshots in the table's metadata. So between two epochs, the oldest
snapshots are removed, after their properties were archived (rule X3). Only metadata is written: the files stay for
readers that still need them, and maintenance deletes the files later.
"""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import STAMP
from tailrace.lake.commit.archive import archive
from tailrace.lake.commit.retention import find_surplus, snapshots_needed_by
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition

LEFT = 5
"""Trimming keeps one in `LEFT` of a table's maximum number of snapshots."""


class Trimming:
    """Trims the snapshots of one table for the table's writer.

    `readers` are the tables that read this table, each with the property of its commits that names the last snapshot
    read. `archived` means that this table's commits are archived before their snapshots are removed.
    """

    def __init__(self, lake: Lake, table: str, *readers: tuple[str, str], archived: bool = True) -> None:
        self.lake, self.table, self.readers, self.archived = lake, table, readers, archived
        self.most = lake.settings.most_snapshots
        self._room = 0

    def after_commit(self) -> bool:
        """Trim the table if it has too many snapshots; return True if it was trimmed.

        Call this method after each commit.
        """
        self._room -= 1
        if self._room > 0:
            return False
        loaded = self.lake.table(self.table)
        self._room = self.most - len(loaded.metadata.snapshots)
        if self._room > 0:
            return False
        # This keeps trimming from being tried at each commit if branches and tags keep too many snapshots.
        self._room = max(1, self.most // LEFT)
        needed = [one for reader, named in self.readers for one in snapshots_needed_by(self.lake, reader, named)]
        going = find_surplus(loaded, self._room, needed)
        if self.archived:
            archive(self.lake, self.table, going.cut)
        try:
            self.lake.forget(self.table, going.removed)
        except MovedError:
            # Other writers commit too often at the moment. Commits that were archived will not be archived again.
            return False
        return True


def ledger_trimming(lake: Lake, definition: Definition) -> Trimming:
    """Return the trimming for a definition's ledger; the definition's answers, if any, are a reader."""
    answers = tables_of(definition).answers
    return Trimming(lake, ledger_name(definition.name), *([] if answers is None else [(answers.table, STAMP)]))
