"""Read a sample of messages in Avro or Protobuf whose schemas are in a schema registry.

The schema of the latest messages gives the types of the columns. The fields of a message are read as a log keeps
undeclared fields (`Log.rest`), so the sample has the values that the log will have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from tailrace.infer.sample import LONGEST, Sample, SampleError, json_object
from tailrace.infer.typed_samples import add_types
from tailrace.ingest.framed.avro_bodies import AvroBodies, avro_schema
from tailrace.ingest.framed.framed_records import (
    HEAD,
    ReadableSchema,
    Schemas,
    bodies_reader,
    framed_records,
    readable_schema,
    schema_ids,
)
from tailrace.ingest.framed.protobuf_bodies import ProtobufBodies
from tailrace.ingest.framed.schema_registry import SchemaRegistry
from tailrace.ingest.line_reader import LINES
from tailrace.model.logs.log import Log

_WHOLE = Log(
    name="sample",
    columns={"tailrace_none": "timestamp"},
    event_time="tailrace_none",
    folders="tailrace_none",
    rest="record",
)
"""A log whose column `record` has all fields of a message, in JSON: its other column is of no field."""

_KINDS = ("avro", "protobuf")


def add_framed(sample: Sample, messages: Sequence[Sequence[tuple[bytes, int]]], registry: SchemaRegistry) -> None:
    """Add the messages of each partition to a sample, with the times at which they arrived.

    Raises `SampleError` if nothing can be inferred from them, and `RegistryError` if the registry does not return their
    schemas.
    """
    ids = [_ids([value for value, _ in part]) for part in messages]
    known = registry.schemas(sorted({id for part in ids for id in part if id is not None}))
    if not known:
        raise SampleError(f"topic {sample.source}: {registry.uri} does not know the schemas of its messages")
    newest = max(known)
    kind = known[newest].kind.lower()
    if kind not in _KINDS:
        raise SampleError(f"topic {sample.source}: its schemas are of kind {kind}: expected {' or '.join(_KINDS)}")
    sample.format, schemas = kind, {id: readable_schema(one, kind) for id, one in known.items()}
    if schemas[newest].unreadable:
        raise SampleError(f"topic {sample.source}: schema {newest}: {schemas[newest].unreadable}")
    kept, latest, reasons = list[bytes](), b"", list[str]()
    for part, own in zip(messages, ids, strict=True):
        texts, before = _texts([value for value, _ in part], own, schemas, reasons), len(sample.records)
        for (value, arrived), id, text in zip(part, own, texts, strict=True):
            if text is not None and len(text) > LONGEST:
                sample.skipped += 1
            elif text is None or (record := json_object(text.encode())) is None:
                sample.unread += 1
            else:
                sample.records.append(record)
                sample.arrivals.append(arrived)
                kept.append(value)
                latest = value if id == newest else latest
        sample.parts.append(len(sample.records) - before)
    if not kept:
        why = f": {reasons[0]}" if reasons else ""
        raise SampleError(f"topic {sample.source}: none of {sample.unread:,} messages can be read{why}")
    if latest:
        _add_schema(sample, schemas[newest], latest[HEAD:])
    sample.check = partial(_reasons, schemas, kept)


def _ids(values: Sequence[bytes]) -> list[int | None]:
    return schema_ids(pa.array(values, pa.binary())).to_pylist()  # type: ignore[no-any-return]


def _texts(
    values: Sequence[bytes], ids: Sequence[int | None], schemas: Schemas, reasons: list[str]
) -> list[str | None]:
    """Return each message in JSON, or None for a message that cannot be read, whose reason is added to `reasons`."""
    made: list[str | None] = [None] * len(values)
    for id, schema in schemas.items():
        places = [place for place, own in enumerate(ids) if own == id]
        reader = bodies_reader(_WHOLE, schema)
        if places and isinstance(reader, AvroBodies | ProtobufBodies):
            columns, misfits = reader.read(pa.array([values[place][HEAD:] for place in places], pa.binary()))
            reasons += misfits.values()
            for number, (place, text) in enumerate(zip(places, columns["record"].to_pylist(), strict=True)):
                made[place] = None if number in misfits else text
    return made


def _add_schema(sample: Sample, schema: ReadableSchema, body: bytes) -> None:
    """Add the types of a schema to a sample; `body` is one of its messages, which has the message type of Protobuf."""
    if schema.descriptors:
        kind = ProtobufBodies(_WHOLE, schema.descriptors).kind(body)
    else:
        kind = avro_schema(schema.registered).kind
    fields: Mapping[str, object] = {} if kind is None else kind.fields
    for name, one in fields.items():
        add_types(sample, (name,), one)


def _reasons(schemas: Schemas, values: Sequence[bytes], log: Log) -> Iterator[str]:
    """Yield the reasons for which a log rejects messages."""
    nothing = {name: [None] * len(values) for name in LINES.names[1:]}
    lines = pa.table({LINES.names[0]: list(values), **nothing, "_offset": range(len(values))}, schema=LINES)
    yield from filter(None, framed_records(log, schemas, lines)["_error"].to_pylist())
