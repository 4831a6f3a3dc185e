"""Avro container files: every record is the same as in JSON, and a damaged file is rejected as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.cli.commands.look.simulated_sample import read_samples
from tailrace.cli.terminal.usage import LoadError
from tailrace.ingest import avro_files
from tailrace.ingest.avro_files import AvroFile, AvroRows, DamagedAvroError
from tailrace.ingest.micro_batch import file_rows
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.sources import Files
from tailrace.model.logs.log import Log
from tests.ingest.test_nested_messages import (
    MISFITS,
    ORDER,
    ORDERS,
    WHOLE,
    Written,
    as_avro,
    as_json,
    comparable,
    read,
    written,
)
from tests.support.depth import cases
from tests.support.lakes.avro_files import HEADER, MARKER, PACKINGS, block, container
from tests.support.lakes.files import by_model, put, said
from tests.support.services.schema_registry import avro_body


def opened(log: Log, file: bytes) -> pa.Table:
    rows = AvroRows(log, AvroFile(pa.BufferReader(file))).read("file:a.avro", 0)
    return pa.concat_tables([schema_of(log).empty_table(), *rows])


@settings(max_examples=cases(80))
@given(written(), st.sampled_from([*PACKINGS]), st.integers(1, 3))
def test_X6_files_of_any_shape_and_codec_are_read_as_the_same_records_in_json(
    made: Written, codec: str, per_block: int
) -> None:
    rows = opened(made.log, container(made.schema, made.bodies, codec, per_block))
    assert rows["_offset"].to_pylist() == list(range(len(made.bodies)))
    assert comparable(said(made.log, rows)) == comparable(by_model(made.log, made.texts))


ORDERS_OF = [{**WHOLE, "orderId": f"é{number}", "count": number} for number in range(7)]
BODIES = [as_avro(one)[5:] for one in ORDERS_OF]


@given(st.sampled_from([*PACKINGS]), st.integers(0, 2500), st.binary(max_size=6), st.booleans())
def test_X7_a_spoiled_file_is_damaged_as_a_whole_or_read(codec: str, place: int, put: bytes, on: bool) -> None:
    whole = container(ORDER, BODIES, codec, 3)
    file = whole[:place] + put + (whole[place + len(put) :] if on else b"")
    with suppress(DamagedAvroError):
        rows = opened(ORDERS, file)
        assert rows["_offset"].to_pylist() == list(range(len(rows)))


DAMAGED: Mapping[str, tuple[bytes, str]] = {
    "nothing": (b"", "it does not begin as a container file of Avro"),
    "json": (b'{"at": 1}\n' * 20, "it does not begin as a container file of Avro"),
    "codec": (
        b"Obj\x01" + avro_body(HEADER, {"avro.schema": b"{}", "avro.codec": b"lzo"}) + MARKER,
        "its codec 'lzo' is none of null, deflate, snappy, zstandard, bzip2, xz",
    ),
    "schema": (
        b"Obj\x01" + avro_body(HEADER, {"avro.schema": b'"string"'}) + MARKER, "the schema is no record's",
    ),
    "cut": (container(ORDER, BODIES)[:-20], "the file ends within the block at byte "),
    "cut within a number": (container(ORDER, BODIES) + b"\xff", "the file ends within the block at byte "),
    "marker": (container(ORDER, BODIES)[:-1] + b"x", " does not end with the file's marker"),
    "too many": (container(ORDER, [*BODIES, b""]), " has no records of the schema: "),
    "too few": (container(ORDER, [b"".join(BODIES[:2])]), " bytes after its records"),
    "records without bytes": (container(ORDER, []) + block(2**40, b""), " has 1,099,511,627,776 records in 0 bytes"),
    "checksum": (
        container(ORDER, [], "snappy") + block(1, PACKINGS["snappy"](BODIES[0])[:-1] + b"x"), "its checksum is wrong",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_X7_a_damaged_file_says_what_is_wrong(name: str) -> None:
    file, reason = DAMAGED[name]
    with pytest.raises(DamagedAvroError) as refused:
        opened(ORDERS, file)
    assert reason in str(refused.value)


@pytest.mark.parametrize("codec", [*PACKINGS])
def test_X7_a_block_that_unpacks_to_far_more_is_not_unpacked(codec: str) -> None:
    with patch.object(avro_files, "BLOCK", 1000), pytest.raises(DamagedAvroError, match="more than 1,000 bytes"):
        opened(ORDERS, container(ORDER, [], codec) + block(1, PACKINGS[codec](bytes(100_000))))


def test_X6_a_rejected_record_is_kept_as_json_and_the_others_are_read() -> None:
    orders = [{**WHOLE, "items": [{"sku": "x", "unit": {"price": 1.005}, "sizes": []}]}, WHOLE]
    rows = opened(ORDERS, container(ORDER, [as_avro(one)[5:] for one in orders]))
    assert said(ORDERS, rows) == read("json", orders)
    (raw, nothing) = rows["_raw"].to_pylist()
    assert nothing is None
    assert json.loads(raw)["items"] == [{"sku": "x", "unit": {"price": 1.005}, "sizes": []}]
    assert json.loads(raw)["key"] == WHOLE["key"]
    other = replace(ORDERS, columns={**ORDERS.declared, "country": "double"})
    found = opened(other, container(ORDER, BODIES[:2]))
    assert len(set(found["_error"].to_pylist())) == 1
    assert str(found["_error"][0]).startswith("field 'user.country' is string, column 'country' is declared as double")
    assert [json.loads(one)["orderId"] for one in found["_raw"].to_pylist()] == ["é0", "é1"]


def test_X6_executors_read_files_as_this_process_does(spark: SparkSession, tmp_path: Path) -> None:
    whole = container(ORDER, BODIES, "zstandard", 2)
    changed = [as_avro({**WHOLE, **one})[5:] for one, _ in MISFITS.values()]
    files = {"a b.avro": whole, "cut.avro": whole[:-3], "other.avro": container(ORDER, changed)}
    paths, source = put(tmp_path, files), Files(str(tmp_path), "avro")
    here = file_rows(spark, source, ORDERS, paths).sort_by([("_source", "ascending"), ("_offset", "ascending")])
    error = "the file cannot be read as avro: the file ends within the block at byte "
    (damaged,) = here.filter(pc.and_(pc.is_null(here["_raw"]), pc.is_valid(here["_error"]))).to_pylist()
    assert (damaged["_source"], damaged["_offset"], damaged["_error"][: len(error)]) == (paths[1], 0, error)
    known = {paths[1]: damaged["_error"]}
    there = read_files(spark, source, ORDERS, paths, unreadable=known).toArrow()
    there = there.sort_by([("_source", "ascending"), ("_offset", "ascending")])
    assert there.to_pylist() == here.to_pylist()
    assert len(there) == len(BODIES) + 1 + len(changed)


def test_simulate_reads_container_files_as_a_stream_does(tmp_path: Path) -> None:
    changed = [as_avro({**WHOLE, **one})[5:] for one, _ in MISFITS.values()]
    put(tmp_path, {"orders.avro": container(ORDER, [*BODIES, *changed])})
    ((_, sample),) = read_samples([ORDERS], tmp_path / "orders.avro")
    assert [one.reason for one in sample.rejected] == [reason for _, reason in MISFITS.values()]
    assert list(sample.records) == by_model(ORDERS, [as_json(one) for one in ORDERS_OF])
    put(tmp_path, {"orders.avro": b"no file"})
    with pytest.raises(LoadError, match="cannot be read as avro: it does not begin as a container file"):
        read_samples([ORDERS], tmp_path / "orders.avro")
