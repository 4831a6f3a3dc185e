"""Compare live tables with their contracts and definitions, using the catalog and no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import HELD, holds
from tailrace.lake.schema.contract_diff import ContractChange, Effect, Kind, contract_changes
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import FormerShapeError, OtherDefinitionError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import UNANSWERED


@dataclass(frozen=True)
class Drift:
    """The differences between a table and its contract.

    `made` states whether the table exists. `differences` has the changes that would make the table match its contract.
    """

    namespace: str
    contract: Contract
    made: bool
    differences: tuple[ContractChange, ...]

    @property
    def state(self) -> Literal["not made yet", "as agreed", "differs"]:
        """The state of the table, as words for a message."""
        if not self.made:
            return "not made yet"
        return "differs" if self.differences else "as agreed"


def drift(lake: Lake, contract: Contract) -> Drift:
    """Compare a contract's live table with the contract. Raises `LakeError` if the catalog cannot be opened."""
    made = lake.has(contract.table)
    differences = contract_changes(contract, lake.table(contract.table)) if made else ()
    return Drift(lake.settings.namespace, contract, made, tuple(differences))


def accumulator_contracts(lake: Lake, definition: Definition) -> list[Contract]:
    """Return the contracts of the ledger and the answers, the tables whose accumulator columns store partial results.

    Tables that do not exist yet are left out. The list is empty for a definition without answers, because the tables of
    such a definition have no accumulator columns.
    """
    own = tables_of(definition)
    return [] if own.answers is None else [one for one in (own.ledger, own.answers) if lake.has(one.table)]


def missing_columns(contract: Contract, table: Table) -> list[ContractChange]:
    """List the accumulator columns (columns with partial results) that a table lacks.

    Such a column is missing if an earlier version of Tailrace created the table.
    """
    added = (one for one in contract_changes(contract, table) if one.kind is Kind.ADD and one.effect is Effect.SAFE)
    return [one for one in added if one.path[0] == UNANSWERED or (len(one.path) > 1 and one.path[0] in HELD)]


def missing_outputs(lake: Lake, definition: Definition) -> list[ContractChange]:
    """List the output columns that the ledger of a map or a join lacks.

    Such a column is missing if the definition passes on more columns of its log than before.
    """
    own = tables_of(definition)
    if definition.windowed or not lake.has(own.ledger.table):
        return []
    added = contract_changes(own.ledger, lake.table(own.ledger.table))
    return [one for one in added if one.kind is Kind.ADD and one.effect is Effect.SAFE and one.name in own.values]


def own_contracts(lake: Lake, definition: Definition) -> list[Contract]:
    """Return the contracts of a definition's ledger and answers; tables that do not exist yet are left out."""
    own = tables_of(definition)
    return [one for one in (own.ledger, own.answers) if one is not None and lake.has(one.table)]


def narrow_columns(contract: Contract, table: Table) -> list[ContractChange]:
    """List the columns of a ledger or of answers whose types are narrower than the definition says.

    A column is narrower if the definition's log has a wider type of a column than before.
    """
    return [one for one in contract_changes(contract, table) if one.kind is Kind.WIDEN]


def check_definition(lake: Lake, definition: Definition) -> None:
    """Raise an error if a definition's tables were written by a different definition, or lack accumulator columns.

    Raises `OtherDefinitionError` if the definition that wrote the ledger computes something else, and
    `FormerShapeError` if accumulator columns are missing (`lake.change.migration`). A caller that reads no accumulators
    can call `check_meaning` instead.
    """
    check_meaning(lake, definition)
    if missing := missing_outputs(lake, definition):
        raise FormerShapeError(
            f"{ledger_name(definition.name)} has no column {', '.join(one.name for one in missing)}, which "
            f"{definition.name} passes on since it was changed; run `tailrace tables apply`, or start its stream"
        )
    for contract in own_contracts(lake, definition):
        if narrow := narrow_columns(contract, lake.table(contract.table)):
            raise FormerShapeError(
                f"{contract.table} has columns for narrower values than {definition.name} may have "
                f"({'; '.join(map(str, narrow))}); run `tailrace tables apply`, or start its stream"
            )
    for contract in accumulator_contracts(lake, definition):
        if missing := missing_columns(contract, lake.table(contract.table)):
            raise FormerShapeError(
                f"{contract.table} has no column {', '.join(one.name for one in missing)}: it was made by an earlier "
                "version, and nothing reads it rightly without; run `tailrace tables apply`, or start its stream"
            )


def check_meaning(lake: Lake, definition: Definition) -> None:
    """Raise `OtherDefinitionError` if the definition that wrote the ledger computes something different from
    `definition`.

    The comparison also covers the earlier stages whose results the definition reads.
    """
    table = ledger_name(definition.name)
    if lake.has(table) and not holds(lake, definition):
        found = lake.head(table).properties.get("fingerprint")
        mend = "give the changed definition another name, or undo the change"
        if definition.windowed:
            mend = f"see what the change means with `tailrace plan` and make it so with `tailrace apply`, {mend}"
        elif definition.recomputable:
            mend = f"build a generation of it and of its readers with `tailrace apply --all-stages`, {mend}"
        raise OtherDefinitionError(
            f"{table} holds the results of a definition with another meaning (fingerprint {found}, this one has "
            f"{definition.fingerprint}): {mend}"
        )
