"""Tables that a replay, or a look at an epoch, keeps what it found in: made anew, and filled by either engine."""

from __future__ import annotations

from tailrace.engines.session import Session
from tailrace.lake.catalog import Lake
from tailrace.lake.contracts import Contract
from tailrace.lake.publish import Branch
from tailrace.model.names import name_faults
from tailrace.verify.recording import ReplayError


def check_new(lake: Lake, table: str, *more: str) -> None:
    """Raises `ReplayError` where a table of this name cannot be made, or `more` that go with it."""
    if list(name_faults("", table)) or "__" in table:
        raise ReplayError(f"table {table!r}: expected a name of up to 63 lower-case letters, digits and single _")
    for one in (table, *more):
        if lake.has(one):
            raise ReplayError(f"there is a table {one} already: give another name, or drop it first")


def kept_in(session: Session, contract: Contract, text: str) -> None:
    """Make a table of a text's rows; where that fails there is none."""
    lake, done = session.lake, False
    lake.ensure(contract)
    try:
        branch = Branch(lake, contract.table, "keep", direct=session.direct)
        branch.start()
        session.write(text, branch, {})
        branch.publish()
        branch.drop()
        done = True
    finally:
        if not done:
            lake.drop(contract.table)
