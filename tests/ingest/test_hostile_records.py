"""Records made to break their reader: each is read whole or rejected with its bytes, and the epoch lands (rule X7)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.plain_columns import other_time_checks
from tailrace.ingest.plain_files import read_typed
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tests.support.depth import cases
from tests.support.lakes.files import THINGS, by_model, said
from tests.support.services.schema_registry import as_lines, avro_body, framed

LOG = Log(name="hostile", columns=dict(THINGS.columns), event_time="at", unknown="ignore")
AVRO = replace(LOG, messages="avro")
CHANGES = Changes(name="hostile", columns=dict(THINGS.columns), event_time="at", unknown="ignore")
ENDS = [
    0,
    1,
    -1,
    2**31 - 1,
    -(2**31),
    2**31,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**20,
    10**38,
    10**400,
]
INSTANTS = [
    "2026-01-01T12:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-05:00", "2026-02-30T12:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", "infinity",
    "0000-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", "2026-01-01 12:00:00.1234567", "",
]  # fmt: skip
TEXTS = [
    *INSTANTS,
    "\0",
    "\ufeff",
    "\ud83d",
    "\udfff\ud83d",
    "\u2028",
    '"',
    "\\",
    "x" * 70_000,
    "{" * 600,
    "7" * 1100,
    "null",
]
VALUES = (
    st.sampled_from([json.dumps(text, ensure_ascii=True) for text in TEXTS])
    | st.sampled_from([str(end) for end in ENDS])
    | st.sampled_from(["1e-400", "1e400", "-0.0", "5e-324", "0.1", "1.005", "NaN", "Infinity", "1" * 1001, "01", "+1"])
    | st.sampled_from(["null", "true", "[]", "{}", "[" * 600 + "]" * 600, '{"a":' * 700 + "1" + "}" * 700, "[" * 5000])
)
NAMES = st.sampled_from([*LOG.columns, *LOG.columns, "more", "AT", "", "\\u0061t", "\\ud83d", "n" * 60_000])


@st.composite
def objects(draw: st.DrawFn) -> str:
    """The text of a JSON object, or of something near to one."""
    fields = draw(st.lists(st.tuples(NAMES, VALUES), max_size=6))
    if draw(st.booleans()):
        fields.append(("at", '"2026-01-01T12:00:00Z"'))
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """The bytes of a message, sometimes spoiled."""
    whole = draw(objects()).encode(errors="surrogatepass")
    match draw(st.integers(0, 5)):
        case 0:
            return whole[: draw(st.integers(0, len(whole)))]
        case 1:
            return b"\xef\xbb\xbf" + whole
        case 2:
            return whole + draw(st.binary(max_size=4))
        case 3:
            return draw(st.binary(max_size=30))
    return whole


def lands(lake: Lake, log: Log, rows: pa.Table) -> int:
    """Write the records that were read to files of the log, as an epoch does, and count them."""
    contract = log_contract(log)
    lake.ensure(contract, {})
    own = rows.append_column("_epoch", pa.repeat(pa.scalar(0, pa.int64()), len(rows))).select([*contract.columns])
    return sum(file.record_count for file in lake.write_files(log.name, own))


def adds_up(log: Log, rows: pa.Table, read: list[bytes]) -> None:
    """Hold X6's sum: each message is in the log or rejected with its bytes and a reason, and what was read lands."""
    good = rows.filter(pc.is_null(rows["_error"]))
    bad = rows.filter(pc.is_valid(rows["_error"]))
    told = [*good["_offset"].to_pylist(), *bad["_offset"].to_pylist()]
    assert sorted(told) == list(range(len(read)))
    for place, raw, reason in zip(*(bad[name].to_pylist() for name in ("_offset", "_raw", "_error")), strict=True):
        assert raw == read[place]
        assert reason
    # Python has each of the instants and days that were read.
    good.select([*(check.column for check in other_time_checks(log)), log.event_time]).to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        assert lands(Lake(Settings(warehouse=place / "lake", contracts=place / "contracts")), log, good) == len(good)


@settings(max_examples=cases(12))
@given(st.lists(messages(), max_size=8))
def test_X7_hostile_lines_are_read_or_rejected_as_the_model_does_and_the_epoch_lands(texts: list[bytes]) -> None:
    rows = read_lines(LOG, as_lines(texts))
    assert said(LOG, rows) == by_model(LOG, texts)
    adds_up(LOG, rows, texts)


@settings(max_examples=cases(12))
@given(st.lists(st.tuples(st.sampled_from("crudtx"), objects(), objects(), st.booleans()), max_size=6))
def test_X7_hostile_changes_are_read_or_rejected_and_the_epoch_lands(all: list[tuple[str, str, str, bool]]) -> None:
    texts = [
        f'{{"op": "{op}", "before": {before}, "after": {after}, "source": {{"ts_ms": 1767268800000}}}}'.encode()
        if whole
        else after.encode()
        for op, before, after, whole in all
    ]
    rows = framed_records(CHANGES, {}, as_lines(texts))
    # An update has two rows at one place.
    places = pc.unique(rows["_offset"]).to_pylist()
    assert sorted(places) == list(range(len(texts)))
    bad = rows.filter(pc.is_valid(rows["_error"]))
    assert bad["_raw"].to_pylist() == [texts[place] for place in bad["_offset"].to_pylist()]
    good = rows.filter(pc.is_null(rows["_error"]))
    good.to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lake = Lake(Settings(warehouse=place / "lake", contracts=place / "contracts"))
        assert lands(lake, CHANGES, good) == len(good)


LONGS = st.sampled_from([n for n in ENDS if -(2**63) <= n < 2**63]) | st.integers(-(2**63), 2**63 - 1)
INTS = st.sampled_from([n for n in ENDS if -(2**31) <= n < 2**31]) | st.integers(-(2**31), 2**31 - 1)
STORED: Mapping[str, tuple[str, str | None, st.SearchStrategy[Any]]] = {
    "at": ("long", "timestamp-micros", st.just(1_767_268_800_000_000) | LONGS),
    "id": ("bytes", None, st.binary(max_size=6) | st.sampled_from([t.encode(errors="surrogatepass") for t in TEXTS])),
    "n": ("long", None, LONGS),
    "small": ("int", None, INTS),
    "ratio": ("double", None, st.floats() | st.sampled_from([float("nan"), float("inf"), 5e-324])),
    "price": ("bytes", "decimal", st.binary(max_size=18)),
    "day": ("int", "date", INTS),
}


def schema(logical: bool) -> dict[str, Any]:
    def typed(type: str, name: str | None) -> Any:
        digits = {"precision": 10, "scale": 2} if name == "decimal" else {}
        return {"type": type, "logicalType": name, **digits} if name and logical else type

    fields = [{"name": name, "type": typed(type, kind)} for name, (type, kind, _) in STORED.items()]
    return {"type": "record", "name": "T", "fields": fields}


@settings(max_examples=cases(12))
@given(st.lists(st.fixed_dictionaries({name: values for name, (_, _, values) in STORED.items()}), max_size=8))
def test_X7_hostile_avro_is_read_or_rejected_and_the_epoch_lands(rows: list[dict[str, Any]]) -> None:
    values = [framed(1, avro_body(schema(False), row)) for row in rows]
    schemas = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(schema(True))))}
    adds_up(AVRO, framed_records(AVRO, schemas, as_lines(values)), values)


@settings(max_examples=cases(12))
@given(
    st.sampled_from(["us", "ms", "ns"]), st.lists(st.tuples(st.just(1_767_268_800_000_000) | LONGS, INTS), max_size=6)
)
def test_X7_hostile_rows_of_parquet_are_read_or_rejected(unit: Any, rows: list[tuple[int, int]]) -> None:
    table = pa.table({
        "at": pa.array([at for at, _ in rows], pa.timestamp(unit, "UTC")),
        "day": pa.array([day for _, day in rows], pa.date32()),
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder) / "a.parquet")
        found = read_typed(LOG, "parquet", [f"file:{folder}/a.parquet"])
    raw = found.sort_by("_offset")["_raw"].to_pylist()
    assert all(set(json.loads(text)) == {"at", "day"} for text in raw if text is not None)
    adds_up(LOG, found, [text or b"" for text in raw])
