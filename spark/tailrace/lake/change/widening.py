"""Add the columns that ledgers and answers made by an earlier version lack for what accumulators hold (rule X7)."""

from __future__ import annotations

from tailrace.lake.catalog.drift import check_definition, kept_by, lacking
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import TRIES, commit
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import Definition, chain


def widen(lake: Lake, definition: Definition) -> None:
    """Add the columns to the tables of a definition and of its stages, and check that the tables are its own.

    What the tables have stays as it is and is read on: totals were in columns that they keep as long as they fit.
    Raises `OtherDefinitionError` where they are of a definition with another meaning, whose tables are left alone, and
    `MovedError` where a table is committed to so often that no try got through.
    """
    for stage in chain(definition):
        ledger = ledger_name(stage.name)
        if lake.has(ledger) and lake.head(ledger).properties.get("fingerprint") == stage.fingerprint:
            for contract in kept_by(lake, stage):
                _widen(lake, contract)
    check_definition(lake, definition)


def _widen(lake: Lake, contract: Contract) -> None:
    for _ in range(TRIES):
        table = lake.table(contract.table)
        if not (missing := lacking(contract, table)):
            return None
        try:
            return commit(table, contract, missing)
        except MovedError:
            continue
    raise MovedError(f"{contract.table} is committed to so often that it could not be changed: try again")
