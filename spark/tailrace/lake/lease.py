"""The lease: one streaming writer for each log and pipeline, by a fencing token in the table itself (rule X1).

Taking the lease commits an empty snapshot to main that carries the next token. A writer with an older token finds main
moved when it publishes, reads the newer token, and stops; nothing of what it wrote is on main.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.lake.catalog import Head, Lake
from tailrace.lake.errors import FencedError, MovedError
from tailrace.lake.publish import Branch

TOKEN = "token"


@dataclass
class Lease:
    """A writer's right to publish to one table, and the branch that it writes."""

    lake: Lake
    table: str
    token: int
    branch: Branch
    head: Head

    @classmethod
    def take(cls, lake: Lake, table: str) -> Lease:
        """Take the lease of a table, whoever holds it now: the last to take it has it."""
        while True:
            head = lake.head(table)
            token = head.number(TOKEN, 0) + 1
            said = {**head.said, TOKEN: str(token)}
            try:
                lake.mark(table, said, head.snapshot)
            except MovedError:
                continue
            branch = Branch(lake, table, f"stream_{token}")
            return cls(lake, table, token, branch, branch.start())

    def check(self) -> Head:
        """Where main stands now, if the lease is still ours. Raises `FencedError` if it is not."""
        head = self.lake.head(self.table)
        held = head.number(TOKEN, 0)
        if held != self.token:
            raise FencedError(
                f"another stream took the lease of {self.table} (its token is {held}, ours was {self.token}): this "
                "one stops, and nothing it had not published is in the table; run only one stream of a pipeline"
            )
        return head

    def publish(self, said: Mapping[str, str]) -> int:
        """Publish what was written to the branch, whose snapshot says `said`.

        Raises `FencedError` if the lease is lost, and `MovedError` if a backfill or maintenance moved the table: the
        branch is then on the new snapshot, and the commit is to be written again.
        """
        try:
            snapshot = self.branch.publish()
            self.head = Head(snapshot, said)
            return snapshot
        except MovedError:
            self.head = self.check()
            self.branch.start()
            raise

    def give_back(self) -> None:
        """Remove the branch. The token stays, and nobody waits for it."""
        self.branch.drop()
