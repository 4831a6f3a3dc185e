"""Before reporting that a commit failed, check whether it succeeded, so that the outcome is seldom unknown.

If the reply to a commit is lost, the commit may have succeeded, or may still succeed. The client library may also have
sent the commit twice. The server then rejects the second request because the first request has succeeded. pyiceberg
would treat this rejection as a failure, and would delete the files of the successful commit.
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

from tailrace.lake.metadata.commit_times import order_commit_times, raise_times
from tailrace.lake.schema.lake_errors import CatalogError, UnansweredError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableUpdate

UNKNOWN = (
    UnansweredError, CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError,
)  # fmt: skip
"""The errors after which it is unknown whether a commit has succeeded, has failed, or may still succeed."""

PATIENCE = 60.0
"""The maximum time for determining the outcome of a commit, in seconds."""

_SOONEST, _LATEST = 0.1, 5.0


def make_commits_sure(catalog: Catalog) -> Catalog:
    """Make a catalog check the outcome of a commit before the catalog reports that the commit failed.

    The catalog also keeps the times of commits in order, even if this machine's clock is wrong
    (`lake.metadata.commit_times`).
    """
    order_commit_times(catalog)

    def commit(table: Table, requirements: Any, updates: tuple[TableUpdate, ...]) -> CommitTableResponse:
        return _Commit(catalog, table, requirements, raise_times(table, updates)).made()

    catalog.commit_table = commit  # type: ignore[method-assign]
    return catalog


class _Commit:
    """A commit that is sent repeatedly until it is certain that the commit has succeeded or failed."""

    def __init__(self, catalog: Catalog, table: Table, requirements: Any, updates: tuple[TableUpdate, ...]) -> None:
        self.catalog, self.table, self.requirements, self.updates = catalog, table, requirements, updates
        self.snapshots = [one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)]

    def made(self) -> CommitTableResponse:
        """Make the commit exactly once, and return the table's new metadata.

        A commit that adds a snapshot requires that its branch is at a certain snapshot. So the commit succeeds at most
        once, even if it is sent several times. If a commit adds no snapshot and its outcome is unknown,
        `CommitFailedException` is raised, and the caller has to check the table.

        Raises `CatalogError` if the outcome stays unknown because the catalog does not answer for too long.
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
        """Send the commit. `again` means that an earlier request for the same commit may have succeeded.

        If `again` is set and the commit adds no snapshot, a second request is not safe, and `CommitFailedException` is
        raised instead.
        """
        if again and not self.snapshots:
            raise CommitFailedException("it is not known whether the commit was made")
        return type(self.catalog).commit_table(self.catalog, self.table, self.requirements, self.updates)

    def _looked(self, error: Exception) -> tuple[Table | None, Exception]:
        """Load the table after the commit failed with `error`; return the table and `error`.

        If the catalog does not answer, return None and the new error. The commit's outcome is then still unknown.
        """
        try:
            return self._after(), error
        except UNKNOWN as silent:
            return None, silent

    def _after(self) -> Table | None:
        """Load the table's current state; return None if the table has not been created yet."""
        try:
            return self.catalog.load_table(self.table.name())
        except NoSuchTableError:
            return None

    def _in(self, after: Table) -> bool:
        return bool(self.snapshots) and all(after.metadata.snapshot_by_id(one) is not None for one in self.snapshots)

    def _refused(self, error: Exception, after: Table | None) -> bool:
        """Return True if the commit has failed for good, so that no earlier request for the commit can still succeed.

        A server may reject a request because it is still processing an earlier request for the same commit. But once a
        branch has moved away from the snapshot that the commit requires, no request for the commit can succeed.
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
