"""Create new tables for a replay's rows, or for the state at the end of an epoch; both engines can write the rows."""

from __future__ import annotations

from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import Contract
from tailrace.model.base.names import name_faults
from tailrace.sql.terms import Query
from tailrace.verify.recorded_epochs import ReplayError


def check_new(lake: Lake, table: str, *more: str) -> None:
    """Check that new tables with the name `table` and with the names in `more` can be created.

    Raises `ReplayError` if a name is not valid, or if a table with one of these names already exists.
    """
    if list(name_faults("", table)) or "__" in table:
        raise ReplayError(f"table {table!r}: expected a name of up to 63 lower-case letters, digits and single _")
    for one in (table, *more):
        if lake.has(one):
            raise ReplayError(f"there is a table {one} already: give another name, or drop it first")


def keep_rows(session: Session, *tables: tuple[Contract, Query]) -> tuple[str, ...]:
    """Create a table from the rows of each query; return the tables' names.

    If a query fails, all tables that were created are dropped.
    """
    lake, made = session.lake, list[str]()
    try:
        for contract, text in tables:
            lake.ensure(contract)
            made.append(contract.table)
            branch = Branch(lake, contract.table, "keep")
            branch.start()
            session.write(text, branch, {})
            branch.publish()
            branch.drop()
    except BaseException:
        for table in made:
            lake.drop(table)
        raise
    return tuple(made)
