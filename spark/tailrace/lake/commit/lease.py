"""The lease: one streaming writer for each log and pipeline, by a fencing token in the table itself (rule X1).

Taking the lease commits an empty snapshot to main that carries the next token. A writer with an older token finds main
moved when it publishes, reads the newer token, and stops; nothing of what it wrote is on main (MillWheel, 5.3).

A backfill of open windows borrows the lease at an epoch boundary: its token is the next one, too, but the commit names
the token of the lender. The lender waits, takes the lease back, and goes on from what the table says then (rule X4). A
borrower that gave up or died does not hold the lease for good: whoever waited long enough takes it, and fences the
borrower off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.table_protocol import Head, Tables, repeated
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.lake_errors import FencedError, LentError, MovedError

TOKEN = "token"
LENDER = "lender"
"""The property with the lender's token, until the lender has taken the lease back or another writer has it."""

BORROWER = "borrower"
"""The property with the run that has borrowed the lease, until the run has given it back."""

REGAINED = "regained"
"""The property with the token that a lender had, in the commit by which the lender takes the lease back."""

LANDING = "landing"
"""The property with the token of the log's lease, where the writer has that, too: a stream that lands has it."""

HOLDING = (LENDER, BORROWER, REGAINED, LANDING)
"""The properties that say who has the lease and how; a commit by which another writer takes it does not repeat them."""

PATIENCE = 60.0
"""Seconds that a writer waits for a borrower to give the lease back."""

TRIES = 3
"""The maximum number of times that a run borrows a lease which streams take in between."""

_POLL = 0.1

T = TypeVar("T")


@dataclass
class Lease:
    """A writer's right to publish to one table, and the branch that the writer writes to."""

    lake: Tables
    table: str
    token: int
    branch: Branch
    head: Head
    landing: int | None = None

    @classmethod
    def take(cls, lake: Tables, table: str, landing: Lease | None = None) -> Lease:
        """Take the lease of a table, whoever holds it now: the last to take it has it.

        `landing` is the log's lease, of a stream that has that, too. Of two such streams that start at once, the one
        that has the log's lease gets the rest: the other raises `FencedError` where a lease was taken with the log's.
        """
        token = None if landing is None else landing.token
        while True:
            head = lake.head(table)
            if landing is not None and head.number(LANDING, 0) > landing.token:
                # A higher token is of a later lease of this log, which fences ours, unless the log was made anew.
                landing.check()
            properties = repeated(head.properties, *HOLDING) | _landing(token)
            try:
                taken = cls._marked(lake, table, head, properties, "stream")
            except MovedError:
                continue
            taken.landing = token
            return taken

    @property
    def properties(self) -> dict[str, str]:
        """The properties by which each commit of the writer names the lease."""
        return {TOKEN: str(self.token), **_landing(self.landing)}

    @classmethod
    def borrow(cls, lake: Tables, table: str, run: str, patience: float = PATIENCE) -> Lease:
        """Borrow the lease of a table for a run; wait for another run that has it, but at most `patience` seconds."""
        until = time.monotonic() + patience
        while True:
            head = lake.head(table)
            # The borrower is this run itself where the reply to its commit was lost.
            if head.properties.get(BORROWER, run) != run and time.monotonic() < until:
                time.sleep(_POLL)
                continue
            lender = head.properties.get(LENDER, str(head.number(TOKEN, 0)))
            try:
                properties = {**repeated(head.properties), LENDER: lender, BORROWER: run}
                return cls._marked(lake, table, head, properties, f"backfill_{run}")
            except MovedError:
                continue

    @classmethod
    def _marked(cls, lake: Tables, table: str, head: Head, properties: Mapping[str, str], writer: str) -> Lease:
        token, taken = _next(lake, table, head, properties)
        branch = Branch(lake, table, f"{writer}_{token}")
        return cls(lake, table, token, branch, branch.start(taken))

    def check(self) -> Head:
        """Return the head of main, if the lease is still ours.

        Raises `LentError` if the lease was borrowed from us, and `FencedError` if another writer has taken it.
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
        """Publish the commit on the branch, whose properties are given; return its snapshot.

        Raises `FencedError` if the lease is lost, `LentError` if it is lent (`regain`), and `MovedError` if a backfill
        or maintenance moved the table: the branch is then on the new snapshot, and the commit is to be written again.
        """
        try:
            snapshot = self.branch.publish()
            self.head = Head(snapshot, properties)
            return snapshot
        except MovedError:
            self.head = self.branch.start(self.check())
            raise

    def commit(self, properties: Mapping[str, str], again: Callable[[], object]) -> bool:
        """Publish an epoch that was written to the branch; `again` writes it on top where another moved the table.

        Files that wait beside the table need not be written again, only listed.

        Returns False where the lease is lent: the epoch is to be made again from what the borrower leaves (rule X4).
        Raises `FencedError` if the lease is lost.
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
        """Take back the lease that was borrowed from us, once it is given back or after `patience` seconds.

        Raises `FencedError` if another stream has taken it meanwhile.
        """
        until = time.monotonic() + patience
        while True:
            head = self.lake.head(self.table)
            if head.properties.get(REGAINED) == str(self.token):
                # We have taken it back already, and only the reply to that commit was lost.
                self._moved(int(head.properties.get(LENDER, head.properties[TOKEN])), head)
                continue
            if head.number(LENDER) != self.token:
                self.check()
                return
            if BORROWER in head.properties and time.monotonic() < until:
                time.sleep(_POLL)
                continue
            try:
                properties = repeated(head.properties, LENDER, BORROWER) | {REGAINED: str(self.token)}
                token, taken = _next(self.lake, self.table, head, properties)
            except MovedError:
                continue
            self._moved(token, taken)
            return

    def _moved(self, token: int, head: Head) -> None:
        """Go on with another token and a new branch, from the head that has the token."""
        self.branch.drop()
        self.token = token
        self.branch = Branch(self.lake, self.table, f"stream_{token}")
        self.head = self.branch.start(head)

    def return_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of a borrower's commit that gives the lease back."""
        return {**repeated(self.head.properties, BORROWER), **properties}

    def give_back(self) -> None:
        """Give a borrowed lease back in an empty commit; do nothing where the lease is not ours any more."""
        while True:
            head = self.lake.head(self.table)
            if head.number(TOKEN, 0) != self.token or BORROWER not in head.properties:
                return
            try:
                self.lake.mark(self.table, repeated(head.properties, BORROWER), head.snapshot)
                return
            except MovedError:
                continue

    def close(self) -> None:
        """Remove the branch. The token stays, and nobody waits for it."""
        self.branch.drop()


@contextmanager
def borrowed(
    lake: Tables, table: str, run: str, patience: float = PATIENCE, *, direct: bool = False
) -> Iterator[Lease]:
    """Have the borrowed lease of a table for as long as the context lasts (`Lease.borrow`)."""
    lease = Lease.borrow(lake, table, run, patience)
    try:
        yield lease
    finally:
        lease.give_back()
        lease.close()


def under_borrowed_lease(
    lake: Tables,
    table: str,
    run: str,
    work: Callable[[Lease], T],
    patience: float = PATIENCE,
) -> T:
    """Do a run's work under the borrowed lease of a table, and again where a stream took the lease in between.

    Raises `FencedError` where a stream took it each of `TRIES` times: it started meanwhile, or waited no longer.
    """
    for left in reversed(range(TRIES)):
        with borrowed(lake, table, run, patience) as lease:
            try:
                return work(lease)
            except FencedError:
                if not left:
                    raise
    raise AssertionError("the last try returns or raises")


def _next(lake: Tables, table: str, head: Head, properties: Mapping[str, str]) -> tuple[int, Head]:
    """Commit the next token with these properties on a head; return the token and the head that the commit makes.

    Main's own head by then is not returned: it may have another's lease, on which this writer's commits must fail.
    """
    token = head.number(TOKEN, 0) + 1
    properties = {**properties, TOKEN: str(token)}
    return token, Head(lake.mark(table, properties, head.snapshot), properties)


def _landing(token: int | None) -> dict[str, str]:
    return {} if token is None else {LANDING: str(token)}
