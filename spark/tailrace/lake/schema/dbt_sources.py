"""Generate the sources of a dbt project from the contracts: every table with its columns, docs, key and freshness."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import LEDGER
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition

HEADING = "# Printed from the contracts by `tailrace tables sources`: edit those.\n"

_VERSION = ("generation", "epoch", "pane_index", "timing")


LOADED_AT = (
    "select timestamp_micros(cast(summary['tailrace.watermark'] as bigint)) as watermark "
    "from {{ this }}.snapshots as s join {{ this }}.refs as r on r.snapshot_id = s.snapshot_id where r.name = 'main'"
)
"""The query that returns a table's progress: the watermark in the table's last commit.

The query uses no macro, so it works in any dbt project.
"""


def sources_text(definitions: Sequence[Definition], contracts: Iterable[Contract]) -> str:
    """Return the text of `sources.yml` for some definitions and the contracts of their tables.

    The archives of commits are left out, because no model reads them.
    If the arguments are equal, the texts are equal. Values are written as JSON, which is valid YAML. The freshness of a
    table is measured by its watermark (`dbt/macros/freshness.sql`).
    """
    by_name = {stage.name: stage for one in definitions for stage in chain(one)}
    logs = {log.name: log for one in definitions for log in one.sources}
    lines = [
        "version: 2\nsources:\n  - name: tailrace\n"
        "    schema: \"{{ env_var('TAILRACE_NAMESPACE', 'main') }}\"\n    tables:\n"
    ]
    for contract in contracts:
        if contract.table.endswith("__commits"):
            continue
        owner = by_name.get(contract.table.removesuffix(LEDGER))
        lines.append(f"      - name: {contract.table}\n        description: {_json(contract.doc)}\n")
        meta: dict[str, Any] = {"owner": contract.owner, "retention": contract.retention, "key": list(contract.key)}
        read = contract.table in logs or (owner is not None and contract.table.endswith(LEDGER))
        if read:
            of = (logs[contract.table],) if owner is None else owner.sources
            meta["clock"] = "records" if all(log.arrival_time is not None for log in of) else "wall"
        if owner is not None and contract.table.endswith(LEDGER):
            meta |= tables_of(owner).meta
        config: dict[str, Any] = {"meta": meta}
        if read:
            config |= {
                "loaded_at_query": LOADED_AT,
                "freshness": {"warn_after": {"count": 12, "period": "hour"}},
            }
        lines.append(f"        config: {_json(config)}\n        columns:\n")
        lines.extend(_columns(contract))
    return HEADING + "".join(lines)


def _columns(contract: Contract) -> Iterator[str]:
    for name, column in contract.columns.items():
        machinery = name.startswith("_") or name in _VERSION
        meta = {"meta": {"machinery": True}} if machinery else {}
        tests = {"data_tests": ["not_null"]} if column.required else {}
        entry = {"name": name, "description": column.doc, **({"config": meta} if meta else {}), **tests}
        yield f"          - {_json(entry)}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
