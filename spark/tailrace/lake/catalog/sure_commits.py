"""Find out what became of a commit before it is reported: made, or refused, and as seldom as possible unknown.

Where the reply to a commit is lost, the commit may have been made, or may still be. A service's client may also have
sent it again, and the second one is refused, since the first has overtaken it: pyiceberg would then delete the files of
the commit as failed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId

from tailrace.lake.metadata.commit_times import in_order, never_earlier
from tailrace.lake.schema.lake_errors import CatalogError, UnansweredError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableUpdate

UNKNOWN = (
    UnansweredError, CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError,
)  # fmt: skip
"""The errors after which a commit may have been made, or not, or is yet to be."""

PATIENCE = 60.0
"""Seconds for which a commit whose outcome is not known is found out about."""

_SOONEST, _LATEST = 0.1, 5.0


def sure(catalog: Catalog) -> Catalog:
    """Have a catalog find out what became of each commit before it reports that the commit failed.

    The times of all commits are in order, whatever this machine's clock says (`lake.metadata.commit_times`).
    """
    in_order(catalog)

    def commit(table: Table, requirements: Any, updates: tuple[TableUpdate, ...]) -> CommitTableResponse:
        return _Commit(catalog, table, requirements, never_earlier(table, updates)).made()

    catalog.commit_table = commit  # type: ignore[method-assign]
    return catalog


class _Commit:
    """A commit that is sent until it is known to be made or refused."""

    def __init__(self, catalog: Catalog, table: Table, requirements: Any, updates: tuple[TableUpdate, ...]) -> None:
        self.catalog, self.table, self.requirements, self.updates = catalog, table, requirements, updates
        self.snapshots = [one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)]

    def made(self) -> CommitTableResponse:
        """Make the commit once, and return what it made of the table.

        A commit that adds a snapshot asserts where its branch stands, so it is made once however often it is sent.
        Where it is not known whether one that adds none was made, `CommitFailedException` has the caller look.

        Raises `CatalogError` where the catalog does not answer for so long that the outcome stays unknown.
        """
        until, pause, unsure = time.monotonic() + PATIENCE, _SOONEST, False
        while True:
            try:
                return self._sent(again=unsure)
            except Exception as error:
                unsure = unsure or isinstance(error, UNKNOWN)
                if not unsure and not self.snapshots:
                    raise
                after, why = self._looked(error)
                if after is not None and self._in(after):
                    return CommitTableResponse(metadata=after.metadata, metadata_location=after.metadata_location)
                if why is error and (not unsure or self._refused(error, after)):
                    raise
                unsure = True
                if time.monotonic() > until:
                    raise self._unknown(why) from error
            time.sleep(pause)
            pause = min(2 * pause, _LATEST)

    def _sent(self, *, again: bool) -> CommitTableResponse:
        """Send the commit; `again` is whether it may have been made already."""
        if again and not self.snapshots:
            raise CommitFailedException("it is not known whether the commit was made")
        return type(self.catalog).commit_table(self.catalog, self.table, self.requirements, self.updates)

    def _looked(self, error: Exception) -> tuple[Table | None, Exception]:
        """Look at the table after an error of the commit; return it, and the error that leaves the outcome unknown."""
        try:
            return self._after(), error
        except UNKNOWN as silent:
            return None, silent

    def _after(self) -> Table | None:
        """Load the table as it stands now; None where it is missing, as it is before the commit that makes it."""
        try:
            return self.catalog.load_table(self.table.name())
        except NoSuchTableError:
            return None

    def _in(self, after: Table) -> bool:
        return bool(self.snapshots) and all(after.metadata.snapshot_by_id(one) is not None for one in self.snapshots)

    def _refused(self, error: Exception, after: Table | None) -> bool:
        """Tell whether the commit is refused for good, and no earlier sending of it can be made any more.

        A server may refuse a sending because it is busy with another, which may be an earlier one of this commit. None
        is made once a branch has moved from where the commit asserts it.
        """
        if isinstance(error, UNKNOWN):
            return False
        if not self.snapshots or after is None or not isinstance(error, CommitFailedException):
            return True
        refs = after.metadata.refs
        stands = [
            (refs[one.ref].snapshot_id if one.ref in refs else None) == one.snapshot_id
            for one in self.requirements
            if isinstance(one, AssertRefSnapshotId)
        ]
        return not stands or not all(stands)

    def _unknown(self, why: Exception) -> CatalogError:
        named = ".".join(self.table.name())
        return CatalogError(
            f"it is not known whether the last commit to {named} was made ({str(why).strip()})",
            "start it again once the catalog answers: what was made is found there, and nothing is made twice",
        )
