"""Find the definitions and dbt models that a change of a table's column affects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING
from tailrace.lake.schema.contract_diff import ContractChange, Kind
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.definition.fingerprint import decode_meaning

_HURTING = frozenset({Kind.RENAME, Kind.DROP, Kind.RETYPE, Kind.REQUIRE})


@dataclass(frozen=True)
class AffectedReaders:
    """The definitions and dbt models that name a changed column.

    A definition is included if the changed table is its ledger or its answers, or if its description in the lake names
    the column. A dbt model is included if its text names the table and the column.
    """

    definitions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def affected_readers(lake: Lake, table: str, change: ContractChange) -> AffectedReaders:
    """Find the definitions and dbt models that name a column that is dropped, renamed, retyped or made required.

    The result is empty for all other kinds of changes.
    """
    if change.kind not in _HURTING:
        return AffectedReaders()
    column = change.before if change.kind is Kind.RENAME else change.path[0]
    return AffectedReaders(tuple(_definitions(lake, table, column)), tuple(_models(lake, table, column)))


def _definitions(lake: Lake, table: str, column: str) -> list[str]:
    found = []
    for name in (name for name in lake.tables if name.endswith(LEDGER)):
        owner = name.removesuffix(LEDGER)
        text = lake.table(name).properties.get(MEANING)
        if table in (owner, name) or (text and any(column == one for one, _ in decode_meaning(text)["columns"])):
            found.append(owner)
    return found


def _models(lake: Lake, table: str, column: str) -> list[str]:
    """List the dbt models whose text names both the table and the column.

    The dbt project is in the folder `dbt` next to the folder of the contracts.
    """
    folder = lake.settings.contracts.parent / "dbt" / "models"
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in (table, column)]
    files = sorted(folder.rglob("*.sql")) if folder.is_dir() else []
    return [file.stem for file in files if all(word.search(file.read_text()) for word in words)]
