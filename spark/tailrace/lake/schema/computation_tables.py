"""Declare the tables of a computation: its ledger, and the registry in which the computation claims ids."""

from __future__ import annotations

from tailrace.lake.schema.contracts import Column, Contract, DefinitionTables, declared_columns
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_log, span_terms
from tailrace.model.base.types import struct_type
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME


def computation_tables(computation: Computation) -> DefinitionTables:
    """Declare the tables of a computation.

    A computation has no table of runs, because a range of event time cannot be computed separately.
    """
    once = computation.once
    registry = None if once is None else registry_contract(once.registry)
    keys, values = tuple(computation.key), tuple(type(computation).produces)
    return DefinitionTables(computation_contract(computation), keys, values, registry=registry)


def computation_contract(computation: Computation) -> Contract:
    """Declare a computation's ledger: states of keys, productions (output rows), late records and rejected records.

    Each epoch is one commit to the ledger.
    """
    keys = {name: Column(computation.log.columns[name], "key") for name in computation.key}
    loops, feedback = computation.loops, type(computation).feedback
    came = "production" if computation.once is None else "production, claimed"
    kinds = "feedback (in flight to its key), " if loops else ""
    kinds += "" if computation.once is None else "claimed (what would have come out, but was another's), "
    record = struct_type({**computation.record_columns, "_epoch": "bigint", "_source": "string", "_offset": "bigint"})
    columns = declared_columns(
        "computation",
        {"more": kinds, "made": f"{came}, feedback" if loops else came},
        keys=keys,
        results={name: Column(type, came) for name, type in type(computation).produces.items()},
        state=struct_type({name: one.type for name, one in computation.fields.items()}) if computation.fields else None,
        returned="bigint" if loops else None,
        feedback=struct_type(feedback) if loops and feedback else None,
        waiting=f"array<{record}>" if computation.ordered else None,
    )
    doc = f"what computation {computation.name} keeps and produced, one commit an epoch"
    spans = span_terms(PANE_TIME, reach_of_log(computation.log))
    return Contract(ledger_name(computation.name), doc, columns, ("kind", *spans), sort_by=(*keys, PANE_TIME))


def registry_contract(name: str) -> Contract:
    """Declare the append-only table of a registry's claims.

    Each claimed pair of an id and an event time is one row.
    """
    columns = declared_columns("registry")
    doc = f"what counts once of all that is produced with registry {name}, and whose it is"
    return Contract(name, doc, columns, partition_by=("day(event_time)",), key=("id", "event_time"))
