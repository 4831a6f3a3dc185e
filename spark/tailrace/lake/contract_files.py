"""The contracts as files: one JSON file a table, a line a column, for people and other tools to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tailrace.lake.contracts import Contract, spark_type


def contract_data(contract: Contract) -> dict[str, Any]:
    """A contract as JSON data; types are Spark SQL's."""
    return {
        "table": contract.table,
        "doc": contract.doc,
        "format_version": contract.format_version,
        "partition_by": list(contract.partition_by),
        "columns": [
            {"name": name, "type": spark_type(column.shape), "required": column.required, "doc": column.doc}
            for name, column in contract.columns.items()
        ],
        "properties": dict(contract.properties),
    }


def contract_text(contract: Contract) -> str:
    """The text of a contract's file: the same for the same contract."""
    data = contract_data(contract)
    columns = ",\n".join(f"    {json.dumps(column, ensure_ascii=False)}" for column in data.pop("columns"))
    properties = data.pop("properties")
    lines = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in data.items()]
    lines.append(f'  "columns": [\n{columns}\n  ]')
    lines.append(f'  "properties": {_mapping(properties)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_contracts(contracts: Iterable[Contract], folder: Path) -> list[tuple[Path, bool]]:
    """Write each contract's file into a folder; gives the files, each with whether it changed.

    Raises `OSError` where the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for contract in contracts:
        path, text = folder / f"{contract.table}.json", contract_text(contract)
        changed = not path.is_file() or path.read_text() != text
        if changed:
            path.write_text(text)
        written.append((path, changed))
    return written


def _mapping(values: Mapping[str, str]) -> str:
    items = ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(values.items()))
    return f"{{\n{items}\n  }}" if items else "{}"
