"""Give a table, in one commit, a new generation: contents that were computed again and built in a separate table.

Before this commit, the files with the new rows are listed only in the separate table. The files are nevertheless
already in a folder of the original table, and have the column ids that the original table will use. So the commit moves
no data: it gives the original table the new columns, and a snapshot that lists the new files. The commit fails if
another commit was made meanwhile. Readers see either the whole old generation or the whole new generation. The old
snapshot keeps its columns and gets a tag. A rollback makes the tagged snapshot current again in the same way.

The ledger table gets the new generation first, and its properties name the generation that the answers table must get.
If the process crashes before the answers table has got this generation, the next process that calls `settle` completes
the change.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import IcebergType, NestedField

from tailrace.lake.catalog.drift import drift
from tailrace.lake.catalog.lake import MAIN, PREFIX, Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.stored_meaning import holds, readers_of
from tailrace.lake.catalog.table_protocol import BEGINS, STAMP
from tailrace.lake.catalog.transactions import ref_update, unchanged_refs
from tailrace.lake.change.refusal_texts import refusal_text
from tailrace.lake.commit.epoch_properties import ONWARD
from tailrace.lake.digests.commit_digest import digest_of, manifest_files, proof_properties
from tailrace.lake.schema.contract_diff import COLUMNS, Kind, table_properties
from tailrace.lake.schema.contract_files import apply_contract_file
from tailrace.lake.schema.contracts import Contract, log_contract
from tailrace.lake.schema.formats import format_properties
from tailrace.lake.schema.iceberg_types import iceberg_schema, type_name
from tailrace.lake.schema.lake_errors import LakeError, MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Productions

GENERATION = "tailrace.generation"
"""The name of the table property that stores a generation number: the generation of the run that built the contents."""

FROM = "tailrace.from"
"""The ledger's table property that names the source of the ledger's present contents: a tag, or a separate table."""

BUILT = "tailrace.built"
"""The ledger's table property with the epoch up to which the generation was built in few large steps.

The rows up to this epoch are in the epochs of these steps, not in the epochs of their records.
"""

TAG = "generation_"
"""The prefix of the tags that mark former generations of a table."""


def generation_of(table: Table) -> int:
    """Return the generation number of a table's contents; it is 1 if the table lacks the property `GENERATION`."""
    return int(table.properties.get(GENERATION, 1))


def built_until(ledger: Table) -> int:
    """Return the last epoch that a ledger's generation was built with (`BUILT`), or -1 if it was streamed."""
    return int(ledger.properties.get(BUILT, -1))


def tag_of(generation: int) -> str:
    """Return the name of the tag that marks a former generation."""
    return f"{TAG}{generation}"


def former_generations(table: Table) -> list[int]:
    """List the former generations that a table still keeps under tags, in ascending order."""
    tags = [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type == "tag"]
    return sorted(int(tag.removeprefix(TAG)) for tag in tags if tag.removeprefix(TAG).isdigit())


def refusal_reason(lake: Lake, pipeline: Pipeline) -> str | None:
    """Return the reason why a changed pipeline cannot be applied to its tables in a lake, or None if it can be
    applied.
    """
    table = ledger_name(pipeline.name)
    if not lake.has(table):
        return refusal_text("no-ledger", ledger=table)
    for earlier in chain(pipeline)[:-1]:
        if not holds(lake, earlier):
            return refusal_text("other-input", pipeline=pipeline.name, earlier=earlier.name)
    if ONWARD in lake.head(table).properties:
        return refusal_text("later-stage", pipeline=pipeline.name)
    return _input_refusal(lake, pipeline)


def stages_to_build(lake: Lake, stages: Sequence[Definition]) -> list[Definition]:
    """List the stages of a chain whose generation must be built again, in order.

    These are the stages that the lake holds with another meaning, and all stages that read one of these stages.
    """
    found: dict[str, Definition] = {}
    for stage in stages:
        if not holds(lake, stage) or any(earlier.name in found for earlier in stage.before):
            found[stage.name] = stage
    return list(found.values())


def chain_refusal_reason(lake: Lake, stages: Sequence[Definition]) -> str | None:
    """Return the reason why a generation of all these stages cannot be built, or None if it can be built.

    `stages` are the stages of a chain that must be built again (`stages_to_build`).
    """
    building = {stage.name for stage in stages}
    for stage in stages:
        if not stage.recomputable:
            return refusal_text("computation", stage=stage.name)
        if not lake.has(ledger_name(stage.name)):
            return refusal_text("no-ledger", ledger=ledger_name(stage.name))
        there = readers_of(lake, stage.name)
        if others := sorted(there - building):
            return refusal_text("other-reader", stage=stage.name, reader=others[0])
        inside = any(earlier.name == stage.name for one in stages for earlier in one.before)
        if ONWARD in lake.head(ledger_name(stage.name)).properties and not inside and stage.windowed:
            return refusal_text("later-stage", pipeline=stage.name)
        if (why := _input_refusal(lake, stage)) is not None:
            return why
    return None


def _input_refusal(lake: Lake, pipeline: Definition) -> str | None:
    """Return the reason why the logs of a definition cannot be read for a new generation, or None if they can be
    read.
    """
    if weak := [log.name for log in pipeline.log.parts if isinstance(log, Productions) and not log.kept]:
        return refusal_text("weak-productions", pipeline=pipeline.name, log=weak[0])
    for source in pipeline.sources:
        log = apply_contract_file(log_contract(source), lake.settings.contracts)
        unused = source.columns.keys() - pipeline.used if source is pipeline.log else ()
        missing = [one for one in drift(lake, log).differences if one.kind in COLUMNS - {Kind.DROP, Kind.REORDER}]
        if missing := [one for one in missing if one.kind is not Kind.ADD or one.name not in unused]:
            return refusal_text("other-log", log=log.table, lacks="; ".join(map(str, missing)))
    return None


def name_beside(pipeline: str, generation: int) -> str:
    """Return the name of the separate table in which a pipeline's generation is built; no pipeline can have this name.

    >>> name_beside("rides", 3)
    'rides__g3'
    """
    return f"{pipeline}__g{generation}"


def make_beside(lake: Lake, contract: Contract, name: str, properties: Mapping[str, str]) -> Table:
    """Create an empty table `name` from a contract; the contract's own table can later take over the new table's files.

    The new table has the partitioning and sort order of the contract's table. Raises `LakeError` if the contract lacks
    a column of this sort order, or of a present or former partitioning of the contract's table.
    """
    contract, target = apply_contract_file(contract, lake.settings.contracts), lake.table(contract.table)
    live = target.metadata
    schema = align_ids(iceberg_schema(contract), target.schema(), live.last_column_id)
    spec, order = target.spec(), target.sort_order()
    taken = {field.source_id for one in target.specs().values() for field in one.fields}
    taken |= {field.source_id for field in order.fields}
    if lacking := sorted(_named_before(target, source) for source in taken - set(schema.field_ids)):
        raise LakeError(refusal_text("lacking-columns", table=contract.table, columns=", ".join(lacking)))
    location = f"{target.location()}/{name}"
    # The table is registered from a metadata file, because a catalog that creates a table assigns its own column ids.
    metadata = new_table_metadata(
        schema,
        PartitionSpec(),
        UNSORTED_SORT_ORDER,
        location,
        {**table_properties(contract), **format_properties(), "format-version": str(live.format_version)},
    ).model_copy(
        update={
            "schemas": [_numbered(schema, 0)],
            "last_column_id": max(schema.highest_field_id, live.last_column_id),
            "partition_specs": [spec],
            "default_spec_id": spec.spec_id,
            "last_partition_id": live.last_partition_id,
            "sort_orders": [order],
            "default_sort_order_id": order.order_id,
        }
    )
    place = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, target.io.new_output(place))
    lake.catalog.register_table((lake.settings.namespace, name), place)
    lake.mark(name, properties, None)
    return lake.table(name)


def _named_before(table: Table, column: int) -> str:
    """Return the latest name of the column with id `column`, or the id as text if no schema of the table has the
    column.
    """
    names = [schema.find_column_name(column) for schema in reversed(table.schemas().values())]
    return next((name for name in names if name), str(column))


def align_ids(schema: Schema, before: Schema, highest: int) -> Schema:
    """Return the schema with column ids; a column that `before` has with the same name and type keeps its id.

    All other columns get new ids above `highest`, the highest id that was ever used. So an id is never used again for
    another column.
    """
    ids = count(highest + 1)
    there = {field.name: field for field in before.fields}
    fields = []
    for field in schema.fields:
        old = there.get(field.name)
        if old is not None and type_name(old.field_type) == type_name(field.field_type):
            number, type = old.field_id, old.field_type
        else:
            number, type = next(ids), cast("IcebergType", assign_fresh_schema_ids(field.field_type, ids.__next__))
        fields.append(NestedField(number, field.name, type, required=field.required, doc=field.doc))
    return Schema(*fields)


@dataclass(frozen=True)
class Contents:
    """The contents of a snapshot: its manifests, its totals (such as the number of rows), and its columns.

    `sequence` is the sequence number of the last commit to the snapshot's table.
    """

    manifests: tuple[ManifestFile, ...]
    totals: Mapping[str, str]
    schema: Schema
    sequence: int

    @classmethod
    def of(cls, table: Table, snapshot: int | None = None) -> Contents:
        """Return the contents of a snapshot, by default of the table's current snapshot.

        Raises `LakeError` if the snapshot no longer exists.
        """
        at = table.current_snapshot() if snapshot is None else table.snapshot_by_id(snapshot)
        if at is None or at.summary is None:
            raise LakeError(f"{table.name()} has no snapshot {snapshot or ''}: it was expired, or never made")
        totals = {k: v for k, v in at.summary.additional_properties.items() if k.startswith("total-")}
        schema = table.schema() if at.schema_id is None else table.schemas()[at.schema_id]
        return cls(tuple(at.manifests(table.io)), totals, schema, _last(table))


def go_over(
    table: Table,
    held: Contents,
    properties: Mapping[str, str],
    table_properties: Mapping[str, str],
    generation: int | str,
    parent: int | None = None,
) -> int:
    """Replace a table's contents with `held` if no branch has moved since the table was loaded.

    Returns the new snapshot's id.

    The commit also sets the table's properties (`table_properties`) and the new snapshot's properties (`properties`),
    and tags the table's present snapshot. If `generation` is a number, the tag is `tag_of(generation)`; if `generation`
    is a text, the text itself is the tag.

    By default, the new snapshot has no parent, because the earlier commits belong to another generation. If `parent` is
    given, the new snapshot has the snapshot `parent` as its parent.

    Raises `MovedError` if another commit was made meanwhile.
    """
    metadata = table.metadata
    before = head_of(table).snapshot
    number = metadata.new_snapshot_id()
    sequence = max(_last(table), held.sequence) + 1
    place = f"{table.location()}/metadata/snap-{number}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(2, table.io.new_output(place), number, None, sequence, "deflate") as listed:
        listed.add_manifests(list(held.manifests))
    updates: list[TableUpdate] = []
    schema = next((one for one in table.schemas().values() if one == held.schema), None)
    if schema is None:
        schema = _numbered(held.schema, max(table.schemas()) + 1)
        updates.append(AddSchemaUpdate(schema_=schema))
    names = {PREFIX + name: value for name, value in properties.items()}
    if parent is None:
        names[PREFIX + BEGINS] = "true"
    since = None if parent is None else metadata.snapshot_by_id(parent)
    own = proof_properties(number, digest_of(manifest_files(held.manifests, table.io)), since, names)
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=sequence,
        manifest_list=place,
        summary=Summary(Operation.OVERWRITE, **held.totals, **names, **own),
        schema_id=schema.schema_id,
    )
    updates += [SetCurrentSchemaUpdate(schema_id=schema.schema_id), SetPropertiesUpdate(updates=dict(table_properties))]
    if before is not None:
        updates.append(ref_update(generation if isinstance(generation, str) else tag_of(generation), before, "tag"))
    updates += [AddSnapshotUpdate(snapshot=snapshot), ref_update(MAIN, number, "branch")]
    # The commit requires that no branch has moved. Checking only main is not enough, because a commit to another branch
    # also uses a sequence number.
    asserted = [*unchanged_refs(table), AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)]
    asserted += [AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id)]
    try:
        table.catalog.commit_table(table, tuple(asserted), tuple(updates))
    except CommitFailedException as error:
        table.io.delete(place)
        raise MovedError(f"{table.name()} moved away from snapshot {before}") from error
    return number


def settle(lake: Lake, pipeline: str) -> None:
    """Switch a pipeline's answers to the generation of its ledger.

    Does nothing if the pipeline has no answers, or if the answers already have this generation. Raises `LakeError` if
    the table or snapshot with the answers of this generation no longer exists.
    """
    while True:
        if not lake.has(pipeline):
            return
        ledger, answers = lake.table(ledger_name(pipeline)), lake.table(pipeline)
        generation = generation_of(ledger)
        if generation_of(answers) == generation:
            return
        place = ledger.properties.get(FROM, "")
        if place in answers.metadata.refs:
            there = answers.metadata.refs[place].snapshot_id
            held, properties = Contents.of(answers, there), dict(head_of(answers, place).properties)
        elif lake.has(place):
            # The answers in the separate table were computed from all commits of the separate ledger. The contents of
            # the separate ledger are now in the first snapshot of the pipeline's ledger. So the answers are current up
            # to this first snapshot.
            held, first = Contents.of(lake.table(place)), lineage(ledger, head_of(ledger).snapshot)[-1]
            properties = {STAMP: str(first.snapshot_id), "epoch": properties_of(first).get("epoch", "-1")}
        else:
            lost = place or "what was built"
            raise LakeError(refusal_text("lost-generation", table=pipeline, generation=generation, place=lost))
        # A follower (which updates the answers), or another process that gives the answers table this generation, may
        # commit first.
        with suppress(MovedError):
            go_over(answers, held, properties, {GENERATION: str(generation)}, generation_of(answers))


def generations_beside(lake: Lake, pipeline: str) -> list[int]:
    """List the generations of a pipeline that are being built in separate tables."""
    tables = lake.catalog.list_tables(lake.settings.namespace)
    found = (re.fullmatch(rf"{re.escape(pipeline)}__g(\d+)(__ledger)?", name) for _, name in tables)
    return sorted({int(match[1]) for match in found if match})


def sweep(lake: Lake, pipeline: str) -> None:
    """Remove a pipeline's separate tables, but keep the data files that the pipeline's own tables have taken over.

    Call `settle` first. The caller must hold the ledger's lease, so that no other process is about to take over the
    separate tables.
    """
    ledger = lake.table(ledger_name(pipeline))
    for generation in generations_beside(lake, pipeline):
        taken = generation == generation_of(ledger) or generation in former_generations(ledger)
        for name in (f"{name_beside(pipeline, generation)}__ledger", name_beside(pipeline, generation)):
            if not lake.has(name):
                continue
            if taken:
                _forget(lake, name)
            else:
                lake.drop(name)


def _forget(lake: Lake, name: str) -> None:
    """Remove a table with its metadata files and manifest lists, but keep the data files, which another table now
    uses.
    """
    table = lake.table(name)
    place = table.metadata_location
    before = [entry.metadata_file for entry in table.metadata.metadata_log]
    lists = [snapshot.manifest_list for snapshot in table.metadata.snapshots]
    lake.catalog.drop_table((lake.settings.namespace, name))
    for file in (*before, *lists, place):
        with suppress(OSError):
            table.io.delete(file)


def _last(table: Table) -> int:
    """Return the sequence number of a table's last commit."""
    return int(getattr(table.metadata, "last_sequence_number", 0))


def _numbered(schema: Schema, number: int) -> Schema:
    return Schema(*schema.fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)
