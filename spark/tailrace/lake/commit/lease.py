"""Allow each log and each pipeline only one streaming writer, which holds a lease on the table (rule X1).

A lease is a fencing token that is recorded in the table. To take the lease, a writer commits an empty snapshot with the
next token to main. When a writer with an older token publishes, it finds that main has moved, reads the newer token,
and stops. None of this writer's unpublished rows are on main (MillWheel, 5.3).

A backfill of open windows borrows the lease at an epoch boundary. The backfill also takes the next token, but its
commit names the token of the stream that lends the lease. The stream waits, takes the lease back, and continues from
the table's new state (rule X4). If the backfill crashes without returning the lease, the waiting stream takes the lease
back after a time, and fences off the backfill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.table_protocol import Head, Tables, repeated_properties
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.lake_errors import FencedError, LentError, MovedError

TOKEN = "token"
LENDER = "lender"
"""The name of the property that stores the token of the lender: the stream whose lease a run has borrowed.

The property remains until the lender or another writer takes the lease.
"""

BORROWER = "borrower"
"""The name of the property that stores the id of the run that has borrowed the lease.

The property remains until the run returns the lease.
"""

REGAINED = "regained"
"""The name of the property that stores the lender's previous token.

Only the commit by which the lender takes the lease back has this property.
"""

LANDING = "landing"
"""The name of the property that stores the token of the log's lease.

A commit has this property only if its stream lands the log. Such a stream holds the log's lease in addition to this
table's lease.
"""

HOLDING = (LENDER, BORROWER, REGAINED, LANDING)
"""The properties that describe the lease's present holder. The next holder's commit does not repeat these
properties.
"""

PATIENCE = 60.0
"""The maximum time in seconds that a writer waits for a borrower to return the lease."""

TRIES = 3
"""The maximum number of a run's attempts under a borrowed lease. An attempt fails if a stream takes the lease."""

_POLL = 0.1

T = TypeVar("T")


@dataclass
class Lease:
    """A writer's right to publish to one table, together with the branch that this writer uses."""

    lake: Tables
    table: str
    token: int
    branch: Branch
    head: Head
    landing: int | None = None

    @classmethod
    def take(cls, lake: Tables, table: str, landing: Lease | None = None) -> Lease:
        """Take the lease of a table, even if another writer holds the lease.

        `landing` is the log's lease, or None if this writer does not hold the log's lease. If two streams that land the
        same log start at the same time, the stream that holds the log's lease gets the leases of all tables. The other
        stream gets a `FencedError` when it tries to take a lease that the first stream has already taken.
        """
        token = None if landing is None else landing.token
        while True:
            head = lake.head(table)
            if landing is not None and head.number(LANDING, 0) > landing.token:
                # The table records a token of the log's lease that is higher than this writer's token. Unless the log
                # was created again, another writer has therefore taken the log's lease after this writer.
                landing.check()
            properties = repeated_properties(head.properties, *HOLDING) | _landing(token)
            with suppress(MovedError):
                taken = cls._marked(lake, table, head, properties, "stream")
                taken.landing = token
                return taken

    @property
    def properties(self) -> dict[str, str]:
        """The properties that identify the lease in each commit that the writer makes."""
        return {TOKEN: str(self.token), **_landing(self.landing)}

    @classmethod
    def borrow(cls, lake: Tables, table: str, run: str, patience: float = PATIENCE) -> Lease:
        """Borrow the lease of a table for a run; wait up to `patience` seconds if another run has borrowed the
        lease.
        """
        until = time.monotonic() + patience
        while True:
            head = lake.head(table)
            # Wait only if another run has borrowed the lease. The recorded borrower may also be this run itself, if the
            # catalog's reply to the run's own commit was lost.
            if head.properties.get(BORROWER, run) != run and time.monotonic() < until:
                time.sleep(_POLL)
                continue
            lender = head.properties.get(LENDER, str(head.number(TOKEN, 0)))
            properties = {**repeated_properties(head.properties), LENDER: lender, BORROWER: run}
            with suppress(MovedError):
                return cls._marked(lake, table, head, properties, f"backfill_{run}")

    @classmethod
    def _marked(cls, lake: Tables, table: str, head: Head, properties: Mapping[str, str], writer: str) -> Lease:
        token, taken = _next(lake, table, head, properties)
        branch = Branch(lake, table, f"{writer}_{token}")
        return cls(lake, table, token, branch, branch.start(taken))

    def check(self) -> Head:
        """Return the head of main if this writer still holds the lease.

        Raises `LentError` if a run has borrowed the lease from this writer, and `FencedError` if another writer has
        taken the lease.
        """
        head = self.lake.head(self.table)
        held = head.number(TOKEN, 0)
        if held == self.token:
            return head
        if head.number(LENDER) == self.token:
            raise LentError(
                f"the lease of {self.table} is lent to run {head.properties.get(BORROWER, 'that gave it back')}"
            )
        self.lake.tell(Publication(self.table, self.branch.writer, Outcome.FENCED, self.token))
        raise FencedError(
            f"another stream took the lease of {self.table} (its token is {held}, ours was {self.token}): this "
            "one stops, and nothing it had not published is in the table; run only one stream of a pipeline"
        )

    def publish(self, properties: Mapping[str, str]) -> int:
        """Publish the commit that is prepared on the branch; return the commit's snapshot id.

        `properties` are the properties of the prepared commit. Raises `FencedError` if another writer has taken the
        lease, `LentError` if a run has borrowed the lease (`regain`), and `MovedError` if a backfill or maintenance has
        committed to the table. After `MovedError`, the branch is based on the table's new snapshot, and the caller has
        to write the commit again.
        """
        try:
            snapshot = self.branch.publish()
            self.head = Head(snapshot, properties)
            return snapshot
        except MovedError:
            self.head = self.branch.start(self.check())
            raise

    def commit(self, properties: Mapping[str, str], again: Callable[[], object]) -> bool:
        """Publish the epoch that the branch contains; if another writer has moved main, call `again` to write the epoch
        again.

        `again` is not called if the written files can be published without writing them again. Returns False if a run
        has borrowed the lease; the caller then recomputes the epoch from the run's result (rule X4). Raises
        `FencedError` if another writer has taken the lease.
        """
        while True:
            try:
                self.publish(properties)
                return True
            except LentError:
                return False
            except MovedError:
                if not self.branch.holds:
                    again()

    def regain(self, patience: float = PATIENCE) -> None:
        """Take the lease back when its borrower returns the lease, or after `patience` seconds.

        Raises `FencedError` if another stream has taken the lease meanwhile.
        """
        until = time.monotonic() + patience
        while True:
            head = self.lake.head(self.table)
            if head.properties.get(REGAINED) == str(self.token):
                # This branch is taken if this writer has already taken the lease back, but the catalog's reply was
                # lost.
                self._moved(int(head.properties.get(LENDER, head.properties[TOKEN])), head)
                continue
            if head.number(LENDER) != self.token:
                self.check()
                return
            if BORROWER in head.properties and time.monotonic() < until:
                time.sleep(_POLL)
                continue
            try:
                properties = repeated_properties(head.properties, LENDER, BORROWER) | {REGAINED: str(self.token)}
                token, taken = _next(self.lake, self.table, head, properties)
            except MovedError:
                continue
            self._moved(token, taken)
            return

    def _moved(self, token: int, head: Head) -> None:
        """Continue with a new token and a new branch; `head` is the commit that recorded the new token."""
        self.branch.drop()
        self.token = token
        self.branch = Branch(self.lake, self.table, f"stream_{token}")
        self.head = self.branch.start(head)

    def return_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties for the commit by which a borrower returns the lease.

        These are the properties of the borrower's last commit without `BORROWER`, updated with `properties`.
        """
        return {**repeated_properties(self.head.properties, BORROWER), **properties}

    def give_back(self) -> None:
        """Return a borrowed lease in an empty commit; do nothing if the run no longer holds the lease."""
        while True:
            head = self.lake.head(self.table)
            if head.number(TOKEN, 0) != self.token or BORROWER not in head.properties:
                return
            with suppress(MovedError):
                self.lake.mark(self.table, repeated_properties(head.properties, BORROWER), head.snapshot)
                return

    def close(self) -> None:
        """Remove the writer's branch. The lease's token stays in the table, but it makes no other writer wait."""
        self.branch.drop()


@contextmanager
def borrow_lease(lake: Tables, table: str, run: str, patience: float = PATIENCE) -> Iterator[Lease]:
    """Borrow the lease of a table for the duration of the `with` block (`Lease.borrow`)."""
    lease = Lease.borrow(lake, table, run, patience)
    try:
        yield lease
    finally:
        lease.give_back()
        lease.close()


def under_borrowed_lease(
    lake: Tables, table: str, run: str, work: Callable[[Lease], T], patience: float = PATIENCE
) -> T:
    """Do a run's work while borrowing a table's lease; repeat the work if a stream takes the lease meanwhile.

    Raises `FencedError` if streams have taken the lease `TRIES` times. A stream takes the lease when it starts, or when
    it no longer waits for the run.
    """
    for left in reversed(range(TRIES)):
        with borrow_lease(lake, table, run, patience) as lease:
            try:
                return work(lease)
            except FencedError:
                if not left:
                    raise
    raise AssertionError("the last try returns or raises")


def _next(lake: Tables, table: str, head: Head, properties: Mapping[str, str]) -> tuple[int, Head]:
    """Commit the next token with these properties on top of a head; return the token and the commit's head.

    The returned head is this commit's own head, even if main has moved since. A later head may belong to another
    writer's lease, and then this writer's commits must fail.
    """
    token = head.number(TOKEN, 0) + 1
    properties = {**properties, TOKEN: str(token)}
    return token, Head(lake.mark(table, properties, head.snapshot), properties)


def _landing(token: int | None) -> dict[str, str]:
    return {} if token is None else {LANDING: str(token)}
