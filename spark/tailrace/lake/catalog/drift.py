"""Differences between the live tables and their contracts and definition, read from the catalog without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contract_diff import ContractChange, changes
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import OtherDefinitionError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import Definition, Windowless


@dataclass(frozen=True)
class Drift:
    """A contract's table in a namespace: whether it exists, and the changes that would bring it to the contract."""

    namespace: str
    contract: Contract
    made: bool
    differences: tuple[ContractChange, ...]

    @property
    def state(self) -> Literal["not made yet", "as agreed", "differs"]:
        """The table's state in words."""
        if not self.made:
            return "not made yet"
        return "differs" if self.differences else "as agreed"


def drift(lake: Lake, contract: Contract) -> Drift:
    """Compare a contract's live table with the contract. Raises `LakeError` where the catalog cannot be opened."""
    made = lake.has(contract.table)
    differences = changes(contract, lake.table(contract.table)) if made else ()
    return Drift(lake.settings.namespace, contract, made, tuple(differences))


def check_definition(lake: Lake, pipeline: Definition) -> None:
    """Raise `OtherDefinitionError` where the definition's ledger was made by a definition with another meaning.

    The meaning of a later stage includes the meanings of the stages before it.
    """
    table = ledger_name(pipeline.name)
    if lake.has(table):
        found = lake.head(table).properties.get("fingerprint")
        if found != pipeline.fingerprint:
            mend = "give the changed definition another name, or undo the change"
            if not isinstance(pipeline, Windowless):
                mend = f"see what the change means with `tailrace plan` and make it so with `tailrace apply`, {mend}"
            raise OtherDefinitionError(
                f"{table} holds the results of a definition with another meaning (fingerprint {found}, this one has "
                f"{pipeline.fingerprint}): {mend}"
            )
