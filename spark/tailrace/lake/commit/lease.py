"""The lease: one streaming writer for each log and pipeline, by a fencing token in the table itself (rule X1).

Taking the lease commits an empty snapshot to main that carries the next token. A writer with an older token finds main
moved when it publishes, reads the newer token, and stops; nothing of what it wrote is on main (MillWheel, 5.3).

A backfill of open windows borrows the lease at an epoch boundary: its token is the next one, too, but the commit names
the token it was borrowed from. The writer that had it waits, takes it back, and goes on from what the table says then
(rule X4). One that gave up or died does not hold it for good: whoever waited long enough takes it, and fences it off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.table_protocol import Head, Tables, repeated
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.lake_errors import FencedError, LentError, MovedError

TOKEN = "token"
LENDER = "lender"
"""The token that the lease was borrowed from, until its writer has taken it back or another one has it."""

BORROWER = "borrower"
"""The run that has borrowed the lease, until it has given it back."""

REGAINED = "regained"
"""The token that a writer had when the lease was borrowed from it, in the commit by which it takes the lease back."""

LANDING = "landing"
"""The token of the log's lease that the writer has with it: a stream that lands, and not one from the log."""

HOLDING = (LENDER, BORROWER, REGAINED, LANDING)
"""What commits say of who has the lease and how, which is nothing to whoever takes it next."""

PATIENCE = 60.0
"""Seconds that a writer waits for a borrower to give the lease back."""

_POLL = 0.1


@dataclass
class Lease:
    """A writer's right to publish to one table, and the branch that it writes."""

    lake: Tables
    table: str
    token: int
    branch: Branch
    head: Head
    landing: int | None = None

    @classmethod
    def take(cls, lake: Tables, table: str, landing: Lease | None = None, *, direct: bool = False) -> Lease:
        """Take the lease of a table, whoever holds it now: the last to take it has it.

        `landing` is the log's lease, of a stream that has that, too. Of two such streams that start at once the one
        that has the log has the rest: the other raises `FencedError` where it comes to what is taken with it.
        """
        token = None if landing is None else landing.token
        while True:
            head = lake.head(table)
            if landing is not None and head.number(LANDING, 0) > landing.token:
                # A token that is higher is of this log, unless that was made anew.
                landing.check()
            properties = repeated(head.properties, *HOLDING) | _landing(token)
            try:
                taken = cls._marked(lake, table, head, properties, "stream", direct=direct)
            except MovedError:
                continue
            taken.landing = token
            return taken

    @property
    def properties(self) -> dict[str, str]:
        """What each commit of the writer says of it."""
        return {TOKEN: str(self.token), **_landing(self.landing)}

    @classmethod
    def borrow(cls, lake: Tables, table: str, run: str, patience: float = PATIENCE, *, direct: bool = False) -> Lease:
        """Borrow the lease of a table for a run, after another run that has it, but for at most so many seconds."""
        until = time.monotonic() + patience
        while True:
            head = lake.head(table)
            # It is our own where the reply to our commit was lost.
            if head.properties.get(BORROWER, run) != run and time.monotonic() < until:
                time.sleep(_POLL)
                continue
            lender = head.properties.get(LENDER, str(head.number(TOKEN, 0)))
            try:
                properties = {**repeated(head.properties), LENDER: lender, BORROWER: run}
                return cls._marked(lake, table, head, properties, f"backfill_{run}", direct=direct)
            except MovedError:
                continue

    @classmethod
    def _marked(
        cls, lake: Tables, table: str, head: Head, properties: Mapping[str, str], writer: str, *, direct: bool
    ) -> Lease:
        token, taken = _next(lake, table, head, properties)
        branch = Branch(lake, table, f"{writer}_{token}", direct=direct)
        return cls(lake, table, token, branch, branch.start(taken))

    def check(self) -> Head:
        """Where main stands now, if the lease is still ours.

        Raises `LentError` if it was borrowed from us, and `FencedError` if another writer has taken it.
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
        """Publish what was written to the branch, whose snapshot says `properties`.

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

        Gives False where the lease is lent: the epoch is to be made again from what the borrower leaves (rule X4).
        Raises `FencedError` if the lease is lost.
        """
        while True:
            try:
                self.publish(properties)
                return True
            except LentError:
                return False
            except MovedError:
                again()

    def regain(self, patience: float = PATIENCE) -> None:
        """Take back the lease that was borrowed from us, once it is given back; after so many seconds in any case.

        Raises `FencedError` if another stream has taken it meanwhile.
        """
        until = time.monotonic() + patience
        while True:
            head = self.lake.head(self.table)
            if head.properties.get(REGAINED) == str(self.token):
                # The reply to our own commit was lost on its way.
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
        """Go on with another token, from a commit that has it."""
        self.branch.drop()
        self.token = token
        self.branch = Branch(self.lake, self.table, f"stream_{token}", direct=self.branch.direct)
        self.head = self.branch.start(head)

    def given_back(self, properties: Mapping[str, str]) -> dict[str, str]:
        """What the commit of a borrower says that gives the lease back."""
        return {**repeated(self.head.properties, BORROWER), **properties}

    def hand_back(self) -> None:
        """Give a borrowed lease back with nothing else to say; where it is ours no more there is nothing to do."""
        while True:
            head = self.lake.head(self.table)
            if head.number(TOKEN, 0) != self.token or BORROWER not in head.properties:
                return
            try:
                self.lake.mark(self.table, repeated(head.properties, BORROWER), head.snapshot)
                return
            except MovedError:
                continue

    def give_back(self) -> None:
        """Remove the branch. The token stays, and nobody waits for it."""
        self.branch.drop()


def _next(lake: Tables, table: str, head: Head, properties: Mapping[str, str]) -> tuple[int, Head]:
    """Commit the next token on a head, saying this; gives the token and the commit.

    That, and not where main stands by then: it may be another's lease, on which this one's commits must fail.
    """
    token = head.number(TOKEN, 0) + 1
    properties = {**properties, TOKEN: str(token)}
    return token, Head(lake.mark(table, properties, head.snapshot), properties)


def _landing(token: int | None) -> dict[str, str]:
    return {} if token is None else {LANDING: str(token)}
