"""Limit the number of a table's snapshots while a stream runs, even if no maintenance is run on the table.

The more snapshots the table's metadata has, the longer a commit takes. So between two epochs, the oldest snapshots are
removed after their properties were archived (rule X3). Only metadata is written: the files stay for readers that still
need them, and maintenance deletes the files later.
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
"""The divisor that determines how many snapshots remain after trimming.

If a table has more than `most_snapshots` snapshots, trimming keeps the latest `most_snapshots / LEFT` snapshots, and
keeps older snapshots only if they are still needed.
"""


class Trimming:
    """Removes the oldest snapshots of one table on behalf of the table's writer.

    `readers` has a pair of names for each table that is computed from this table. The first name is the name of the
    reading table. The second name is the name of the property in which the reading table's commits record the last
    snapshot that was read. `archived` means that this table's commits are archived before their snapshots are removed.
    """

    def __init__(self, lake: Lake, table: str, *readers: tuple[str, str], archived: bool = True) -> None:
        self.lake, self.table, self.readers, self.archived = lake, table, readers, archived
        self.most = lake.settings.most_snapshots
        self._room = 0

    def after_commit(self) -> bool:
        """Remove the oldest snapshots if the table has too many snapshots; return True if snapshots were removed.

        The writer has to call this method after each of its commits.
        """
        self._room -= 1
        if self._room > 0:
            return False
        loaded = self.lake.table(self.table)
        self._room = self.most - len(loaded.metadata.snapshots)
        if self._room > 0:
            return False
        # If branches and tags keep too many snapshots, this attempt removes too few of them. The next attempt is then
        # made only after some commits, not after each commit.
        self._room = max(1, self.most // LEFT)
        needed = [one for reader, named in self.readers for one in snapshots_needed_by(self.lake, reader, named)]
        going = find_surplus(loaded, self._room, needed)
        if self.archived:
            archive(self.lake, self.table, going.cut)
        try:
            self.lake.forget(self.table, going.removed)
        except MovedError:
            # Other writers commit too often at the moment, so the snapshots could not be removed. The next attempt does
            # not archive the same commits again.
            return False
        return True


def ledger_trimming(lake: Lake, definition: Definition) -> Trimming:
    """Create the `Trimming` of a definition's ledger, which keeps the snapshots that the answers table still has to
    read.
    """
    answers = tables_of(definition).answers
    return Trimming(lake, ledger_name(definition.name), *([] if answers is None else [(answers.table, STAMP)]))
