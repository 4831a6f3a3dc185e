"""Whom a change of a table hurts that somebody reads by name: the definitions and the dbt models that name a column."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import MEANING
from tailrace.lake.schema.contract_diff import Change, Kind
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.definition.fingerprint import read

_HURTING = frozenset({Kind.RENAME, Kind.DROP, Kind.RETYPE, Kind.REQUIRE})


@dataclass(frozen=True)
class Hurt:
    """Who names the column of a change: definitions by what the lake says of their meaning, and dbt models by name."""

    definitions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def hurt(lake: Lake, table: str, change: Change) -> Hurt:
    """Who names the column that a change takes away, or gives another name or type."""
    if change.kind not in _HURTING:
        return Hurt()
    column = change.before if change.kind is Kind.RENAME else change.path[0]
    return Hurt(tuple(_definitions(lake, table, column)), tuple(_models(lake, table, column)))


def _definitions(lake: Lake, table: str, column: str) -> list[str]:
    found = []
    for name in (name for name in lake.tables if name.endswith(LEDGER)):
        owner = name.removesuffix(LEDGER)
        text = lake.table(name).properties.get(MEANING)
        if table in (owner, name) or (text and any(column == one for one, _ in read(text)["columns"])):
            found.append(owner)
    return found


def _models(lake: Lake, table: str, column: str) -> list[str]:
    """The models of the dbt project beside the contracts whose text names both the table and the column."""
    folder = lake.settings.contracts.parent / "dbt" / "models"
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in (table, column)]
    files = sorted(folder.rglob("*.sql")) if folder.is_dir() else []
    return [file.stem for file in files if all(word.search(file.read_text()) for word in words)]
