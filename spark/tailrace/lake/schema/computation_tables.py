"""Declare the tables of a computation: its ledger, and the registry in which the computation claims ids."""

from __future__ import annotations

from tailrace.lake.schema.contracts import Column, Contract, DefinitionTables
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_log, span_terms
from tailrace.model.base.types import struct_type
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME

_TIMERS = "array<struct<name:string,domain:string,at:timestamp,holds:timestamp>>"


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
    came = "production" if computation.once is None else "production, claimed"
    made = {name: Column(type, came) for name, type in type(computation).produces.items()}
    fed_back = ", feedback" if computation.loops else ""
    place = f"the record's {{0}} in the log; {came}{fed_back}: {{1}}"
    columns = {
        "kind": Column("string", _computed(computation), required=True),
        **keys,
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        **made,
        PANE_TIME: Column("timestamp", f"{came}{fed_back}: when it happened; late, rejected: the record's event time"),
        "timers": Column(_TIMERS, "partial: the pending timers, in the order in which they are due"),
        "gone": Column("boolean", "partial: whether the key has nothing any more"),
        "taken": Column("bigint", "partial: records that the key took in the epoch"),
        "timers_set": Column("bigint", "partial: timers that were set in the epoch"),
        "timers_fired": Column("bigint", "partial: timers that fired in the epoch"),
        "timers_dropped": Column("bigint", "partial: timers that were deleted or set anew in the epoch"),
        "watermark": Column("timestamp", "late: the watermark that it was judged by"),
        "behind": Column("bigint", "late: how far the watermark was past the record, in microseconds"),
        "reason": Column("string", "rejected: what was wrong"),
        "source_epoch": Column("bigint", place.format("_epoch", "its epoch")),
        "source_partition": Column("string", place.format("_source", "the key that it is of, as text")),
        "source_offset": Column("bigint", place.format("_offset", "its place among the key's of the epoch")),
    }
    if computation.fields:
        fields = struct_type({name: one.type for name, one in computation.fields.items()})
        columns["state"] = Column(fields, "partial: the fields of the key's state")
    if computation.loops:
        columns["returned"] = Column("bigint", "partial: records that came round the loop; rejected: 1 for one of them")
        if feedback := type(computation).feedback:
            columns["feedback"] = Column(struct_type(feedback), "feedback: what the key is to take in the next epoch")
    if computation.ordered:
        record = struct_type({**computation.log.columns, "_epoch": "bigint", "_source": "string", "_offset": "bigint"})
        columns["waiting"] = Column(
            f"array<{record}>", "partial: records that the watermark has not passed yet, in order"
        )
    doc = f"what computation {computation.name} keeps and produced, one commit an epoch"
    spans = span_terms(PANE_TIME, reach_of_log(computation.log))
    return Contract(ledger_name(computation.name), doc, columns, ("kind", *spans), sort_by=(*keys, PANE_TIME))


def _computed(computation: Computation) -> str:
    loop = "feedback (in flight to its key), " if computation.loops else ""
    loop += "claimed (what would have come out, but was another's), " if computation.once is not None else ""
    return f"partial (a key after the epoch), production (what came out), {loop}late, or rejected by the computation"


def registry_contract(name: str) -> Contract:
    """Declare the append-only table of a registry's claims.

    Each claimed pair of an id and an event time is one row.
    """
    columns = {
        "id": Column("string", "what is claimed, as text", required=True),
        "event_time": Column("timestamp", "when it happened: the same id at another time is another", required=True),
        "claimant": Column("string", "whose it is: the namespace and the computation", required=True),
        "epoch": Column("bigint", "the claimant's epoch that claimed it", required=True),
    }
    doc = f"what counts once of all that is produced with registry {name}, and whose it is"
    return Contract(name, doc, columns, partition_by=("day(event_time)",), key=("id", "event_time"))
