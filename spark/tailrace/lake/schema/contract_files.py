"""Store the contracts as files for people and other tools: one JSON file for each table, with one line per column.

A contract's file has two parts. The first part follows from the definition: the table's columns with their types, and
its key. Tailrace prints this part into the file, and a test checks that this part matches the code. The second part is
what people agree on: owner, retention, docs, former names of columns, partitioning, sort order, properties and format
version. If a contract's file and the code disagree on the second part, the value in the file is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.schema.layouts import layout_faults
from tailrace.model.base.errors import Fault


class ContractError(LakeError, ValueError):
    """A contract's file is invalid; the error message lists every fault of the file."""


def contract_data(contract: Contract) -> dict[str, Any]:
    """Convert a contract to JSON data; column types are given by their names in Spark SQL."""
    return {
        **{name: getattr(contract, name) for name in ("table", "doc", "owner", "retention", "format_version")},
        **{name: list(getattr(contract, name)) for name in ("key", "partition_by", "sort_by")},
        "columns": [
            {"name": name, "type": column.type, "required": column.required, "doc": column.doc}
            | ({"was": list(column.was)} if column.was else {})
            for name, column in contract.columns.items()
        ],
        "properties": dict(contract.properties),
    }


def contract_text(contract: Contract) -> str:
    """Return the text of a contract's file; equal contracts have equal texts."""
    data = contract_data(contract)
    columns = ",\n".join(f"    {json.dumps(column, ensure_ascii=False)}" for column in data.pop("columns"))
    properties = data.pop("properties")
    lines = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in data.items()]
    lines.append(f'  "columns": [\n{columns}\n  ]')
    lines.append(f'  "properties": {_mapping(properties)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def apply_contract_file(contract: Contract, folder: Path) -> Contract:
    """Return a contract with the values from the contract's file in `folder`, which replace the code's values.

    If there is no file, the contract is returned unchanged. Raises `ContractError` if the file is invalid; the message
    lists all faults of the file.
    """
    path = folder / f"{contract.table}.json"
    if not path.is_file():
        return contract
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise ContractError(
            f"{path}: not JSON ({error}): mend it, or write it anew with `tailrace tables write`"
        ) from None
    faults = list(_faults(data, contract))
    if faults:
        listed = "\n".join(f"  {place}. {fault}" for place, fault in enumerate(faults, 1))
        raise ContractError(f"{path}: the contract does not hold:\n{listed}")
    columns = dict(contract.columns)
    for column in data.get("columns", []):
        if (own := columns.get(column["name"])) is not None:
            columns[column["name"]] = replace(own, doc=column.get("doc", own.doc), was=tuple(column.get("was", ())))
    fields: dict[str, Any] = {
        name: data[name] for name in ("doc", "owner", "retention", "format_version") if name in data
    }
    fields |= {name: tuple(data[name]) for name in ("partition_by", "sort_by") if name in data}
    return replace(
        contract,
        columns=columns,
        **fields,
        # Properties that the code sets are kept even if the file lacks these properties, because the file may be older
        # than the code.
        properties={**contract.properties, **data.get("properties", {})},
    )


def _faults(data: Any, contract: Contract) -> Iterator[Fault]:
    if not isinstance(data, dict):
        yield Fault("the file", type(data).__name__, "an object", "write it anew with `tailrace tables write`")
        return
    if unknown := sorted(set(data) - set(contract_data(contract))):
        yield Fault(unknown[0], data[unknown[0]], f"one of {', '.join(contract_data(contract))}", "take it out")
    for name in ("doc", "owner", "retention"):
        if not isinstance(data.get(name, " "), str) or not data.get(name, " "):
            yield Fault(name, data[name], "a text", "say it in a few words")
    if data.get("format_version", 2) != 2:
        yield Fault("format_version", data["format_version"], "2, the one that pyiceberg commits to", "write 2")
    properties = data.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        yield Fault("properties", properties, "names with texts", 'write {"write.parquet.compression-codec": "zstd"}')
    elif own := sorted(name for name in properties if name.startswith("tailrace.")):
        yield Fault(f"properties[{own[0]!r}]", properties[own[0]], "none that Tailrace keeps for itself", "take it out")
    columns = data.get("columns", [])
    if not isinstance(columns, list) or not all(
        isinstance(column, dict) and isinstance(column.get("name"), str) for column in columns
    ):
        yield Fault("columns", columns, "a list of columns with names", "write it anew with `tailrace tables write`")
        return
    for column in columns:
        if not isinstance(column.get("doc", ""), str):
            yield Fault(f"columns[{column['name']!r}].doc", column["doc"], "a text", "say what it holds, with its unit")
        former = column.get("was", [])
        if not isinstance(former, list) or not all(isinstance(name, str) for name in former):
            yield Fault(f"columns[{column['name']!r}].was", former, "a list of former names", 'write ["delay"]')
    yield from layout_faults(data, contract)


def write_contracts(contracts: Iterable[Contract], folder: Path) -> list[tuple[Path, bool]]:
    """Write each contract's file into a folder; return each file's path, and True if the file's text changed.

    If a contract's file exists, its second part, which people agree on, is kept. Raises `OSError` if a file cannot be
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for contract in contracts:
        path, text = folder / f"{contract.table}.json", contract_text(apply_contract_file(contract, folder))
        changed = not path.is_file() or path.read_text() != text
        if changed:
            path.write_text(text)
        written.append((path, changed))
    return written


def _mapping(values: Mapping[str, str]) -> str:
    items = ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(values.items()))
    return f"{{\n{items}\n  }}" if items else "{}"
