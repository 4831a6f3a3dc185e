"""Reading raw records: good ones come out exactly, every bad one with its bytes and the reason (rule X6)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.micro_batch import file_rows, message_rows
from tailrace.ingest.parsing import read_files, read_messages
from tailrace.ingest.sources import Files, Format, SourceError
from tailrace.model.base.time import instant
from tailrace.model.logs.log import Log
from tests.support.lakes.files import THINGS, Outcome, lines, outcome, put

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = '"at": "2026-01-01T12:00:00Z"'
OUTSIDE = "lies outside [1900-01-01, 2200-01-01): set earliest and latest in the log"
DECLARE = 'declare it in the log, or set unknown="ignore"'


def the(id: str | None = None, at: datetime = NOON, **values: Any) -> tuple[Any, ...]:
    """A record's values in the order of the columns."""
    return (id, instant(at), *(values.get(name) for name in list(THINGS.columns)[2:]))


def reading(
    spark: SparkSession, folder: Path, format: Format, records: int, files: Mapping[str, Any], log: Log = THINGS
) -> Outcome:
    source, paths, blank = Files(str(folder), format), put(folder, files), BlankLines()
    frame = read_files(spark, source, log, paths, blank)
    found = outcome(frame, log, records)
    # What this process reads by itself comes out alike, every reason and byte.
    counted = BlankLines()
    rows = file_rows(spark, source, log, paths, counted)
    assert counted.total == blank.total
    here = outcome(frame_of(spark, rows), log, records)
    places = ["_source", "_arrival"]
    assert _counted(frame.select(places).toArrow()) == _counted(rows.select(places))
    assert (Counter(here.good), Counter(here.bad)) == (Counter(found.good), Counter(found.bad))
    return found


def _counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


# ----------------------------------------------------------------------------------------------------------- JSON lines

GOOD_JSON = {
    '{"id": "a", "at": "2026-01-01T12:00:00Z", "n": 1, "small": -2, "ratio": 0.5, "price": 1.25, "day": "2026-02-28", '
    '"ok": true}': the("a", n=1, small=-2, ratio=0.5, price=Decimal("1.25"), day=date(2026, 2, 28), ok=True),
    '{"ok":false,"at":"2026-01-01T12:00:00Z"}': the(ok=False),
    f'{{{AT}, "id": null, "n": null, "price": null}}': the(),
    f'{{{AT}, "id": "a b, c"}}': the("a b, c"),
    f'{{{AT}, "id": "5"}}': the("5"),
    f'{{{AT}, "id" : "6"}}': the("6"),
    f'{{{AT}, "id": "true"}}': the("true"),
    f'{{{AT}, "id": "{{\\"a\\": 1}}"}}': the('{"a": 1}'),
    f'{{{AT}, "id": "}} {{"}}': the("} {"),
    f'{{{AT}, "id": "\\ud83d\\ude00 and \\\\ud83d"}}': the("😀 and \\ud83d"),
    f'{{{AT}, "id": "héé"}}': the("héé"),
    f'{{{AT}, "n": 9223372036854775807}}': the(n=2**63 - 1),
    f'{{{AT}, "n": -9223372036854775808, "small": 2147483647}}': the(n=-(2**63), small=2**31 - 1),
    f'{{{AT}, "ratio": 3}}': the(ratio=3.0),
    f'{{{AT}, "ratio": 1e300}}': the(ratio=1e300),
    f'{{{AT}, "price": 12345678.90}}': the(price=Decimal("12345678.90")),
    f'{{{AT}, "ratio": 9007199254740992}}': the(ratio=2.0**53),
    f'{{{AT}, "ratio": 9007199254740993.0}}': the(ratio=2.0**53),
    f'{{{AT}, "ratio": 0e-400}}': the(ratio=0.0),
    f'{{{AT}, "ratio": 5e-324}}': the(ratio=5e-324),
    f'{{{AT}, "price": 7}}': the(price=Decimal(7)),
    f'{{{AT}, "price": 7.5000}}': the(price=Decimal("7.5")),
    f'{{{AT}, "price": 1.25e2}}': the(price=Decimal("125")),
    '{"at": "2026-01-01T17:30:00+05:30"}': the(),
    '{"at": "2026-01-01 12:00:00"}': the(),
    '{"at": "2026-01-01T07:00:00.000-0500"}': the(),
    '{"at": "2026-01-01T12:00:00.123456789Z"}': the(at=NOON.replace(microsecond=123456)),
    '{"at": "1900-01-01T00:00:00Z"}': the(at=datetime(1900, 1, 1, tzinfo=UTC)),
    '{"at": "2199-12-31T23:59:59.999999Z"}': the(at=datetime(2199, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    f'  \t{{{AT}, "id": "with space around"}} \t': the("with space around"),
}

BAD_JSON = {
    # No object, or more than one.
    "{": "not one JSON object",
    f'{{{AT}, "n": 1': "not one JSON object",
    f'{{{AT}, "n": }}': "not one JSON object",
    f'{{{AT}, "n": 01}}': "not one JSON object",
    "{'at': '2026-01-01T12:00:00Z'}": "not one JSON object",
    f"[{{{AT}}}]": "not one JSON object",
    f"[{{{AT}}}, {{{AT}}}]": "not one JSON object",
    "5": "not one JSON object",
    '"text"': "not one JSON object",
    "null": "not one JSON object",
    f"{{{AT}}} {{{AT}}}": "not one JSON object",
    f"{{{AT}}} and more": "not one JSON object",
    f"{{{AT}}},1] }}": "not one JSON object",
    f"1,{{{AT}}}": "not one JSON object",
    f'{{{AT}, "ratio": NaN}}': "not one JSON object",
    f'{{{AT}, "id": "a\tb"}}': "not one JSON object",
    # Another type than declared.
    f'{{{AT}, "n": "5"}}': 'n = "5" is not a bigint',
    f'{{{AT}, "n": 5.0}}': "n = 5.0 is not a bigint",
    f'{{{AT}, "n": 5.5}}': "n = 5.5 is not a bigint",
    f'{{{AT}, "n": 9223372036854775808}}': "n = 9223372036854775808 is not a bigint",
    f'{{{AT}, "n": true}}': "n = true is not a bigint",
    f'{{{AT}, "small": 2147483648}}': "small = 2147483648 is not a int",
    f'{{{AT}, "ratio": "0.5"}}': 'ratio = "0.5" is not a double',
    f'{{{AT}, "ratio": "NaN"}}': 'ratio = "NaN" is not a double',
    f'{{{AT}, "ratio": 1e999}}': "ratio = 1e999 is not a double",
    f'{{{AT}, "ratio": 1e-400}}': "ratio = 1e-400 is not a double",
    f'{{{AT}, "ratio": 9007199254740993}}': "ratio = 9007199254740993 is not a double",
    f'{{{AT}, "ratio": -12345678901234567890 }}': "ratio = -12345678901234567890 is not a double",
    f'{{{AT}, "ok": "true"}}': 'ok = "true" is not a boolean',
    f'{{{AT}, "ok": 1}}': "ok = 1 is not a boolean",
    f'{{{AT}, "price": 1.005}}': "price = 1.005 is not a decimal(10,2)",
    f'{{{AT}, "price": 123456789}}': "price = 123456789 is not a decimal(10,2)",
    f'{{{AT}, "price": "12.99"}}': 'price = "12.99" is not a decimal(10,2)',
    f'{{{AT}, "price": "1,5"}}': 'price = "1,5" is not a decimal(10,2)',
    f'{{{AT}, "day": "2026-02-30"}}': 'day = "2026-02-30" is not a date',
    f'{{{AT}, "day": "2026-01-01T23:00:00-05:00"}}': 'day = "2026-01-01T23:00:00-05:00" is not a date',
    f'{{{AT}, "day": "2026"}}': 'day = "2026" is not a date',
    f'{{{AT}, "id": 5}}': "id = 5 is not a string",
    f'{{{AT}, "id": 1.10}}': "id = 1.10 is not a string",
    f'{{{AT}, "id": false}}': "id = false is not a string",
    f'{{{AT}, "id": {{"a": 1}}}}': 'id = {"a":1} is not a string',
    f'{{{AT}, "id": ["a"]}}': 'id = ["a"] is not a string',
    f'{{{AT}, "n": "5", "ok": 0}}': 'n = "5" is not a bigint; ok = 0 is not a boolean',
    # The event time.
    "{}": "the event time at is missing",
    '{"at": null}': "the event time at is missing",
    '{"n": 1}': "the event time at is missing",
    '{"at": ""}': 'at = "" is not a timestamp',
    '{"at": "noon"}': 'at = "noon" is not a timestamp',
    '{"at": "12:00:00"}': 'at = "12:00:00" is not a timestamp',
    '{"at": "T12:00:00Z"}': 'at = "T12:00:00Z" is not a timestamp',
    '{"at": "2026"}': 'at = "2026" is not a timestamp',
    '{"at": "2026-01-01T25:00:00Z"}': 'at = "2026-01-01T25:00:00Z" is not a timestamp',
    '{"at": 1767268800}': "at = 1767268800 is not a timestamp",
    '{"at": "0001-01-01T00:00:00Z"}': f"the event time at = 0001-01-01 00:00:00 {OUTSIDE}",
    '{"at": "9999-12-31T23:59:59Z"}': f"the event time at = 9999-12-31 23:59:59 {OUTSIDE}",
    '{"at": "2200-01-01T00:00:00Z"}': f"the event time at = 2200-01-01 00:00:00 {OUTSIDE}",
    # Columns.
    f'{{{AT}, "more": 1}}': f"unknown column more: {DECLARE}",
    f'{{{AT}, "more": {{"id": "5"}}, "yet": 2}}': f"unknown column more, yet: {DECLARE}",
    f'{{{AT}, "N": 1}}': f"unknown column N: {DECLARE}",
    f'{{{AT}, "n": 1, "n": 2}}': "a column is there twice",
    f"{{{AT}, {AT}}}": "a column is there twice",
    # Characters.
    f'{{{AT}, "id": "\\ud83d"}}': "half of a surrogate pair, which is no character",
    f'{{{AT}, "id": "\\uDE00\\ud83d"}}': "half of a surrogate pair, which is no character",
}


def test_json_lines_are_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    read = reading(spark, tmp_path, "json", len(GOOD_JSON), {"a.json": lines(*GOOD_JSON)})
    assert read.bad == []
    assert read.good == list(GOOD_JSON.values())


def test_each_bad_line_of_json_is_rejected_with_its_bytes_and_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    good = next(iter(GOOD_JSON))
    read = reading(spark, tmp_path, "json", len(BAD_JSON) + 2, {"a.json": lines(good, *BAD_JSON, good)})
    assert read.reasons == {line.encode(): reason for line, reason in BAD_JSON.items()}
    assert read.good == [GOOD_JSON[good]] * 2


def test_columns_that_are_not_declared_can_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    log = replace(THINGS, unknown="ignore")
    good = [f'{{{AT}, "id": "5", "more": {{"n": "x", "deep": [1, {{"id": 7}}]}}}}', f'{{{AT}, "N": "x", "yet": null}}']
    bad = {
        f'{{{AT}, "more": 1, "n": "5"}}': 'n = "5" is not a bigint',
        f'{{{AT}, "id": 5, "more": {{"id":"5"}}}}': "id = 5 is not a string",
        f'{{{AT}, "more": 1}} {{}}': "not one JSON object",
        f'{{{AT}, "more": 1, "n": 2, "n": 2}}': "a column is there twice",
    }
    read = reading(spark, tmp_path, "json", 6, {"a.json": lines(*good, *bad)}, log)
    assert read.good == [the("5"), the()]
    assert read.reasons == {line.encode(): reason for line, reason in bad.items()}


def test_bytes_that_are_not_utf8_come_back_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    bad = [b'{"id": "\xff\xfe"}', b"\xe3", b"\xc3\x28 \x00\x01", "{}".encode("utf-16-le") + b"\xd8", b"  \xf0\x9f\r"]
    good = f"{{{AT}}}".encode()
    read = reading(spark, tmp_path, "json", 6, {"a.json": lines(good, *bad)})
    assert read.reasons == dict.fromkeys(bad, "not UTF-8")
    assert read.good == [the()]


def test_a_mark_at_the_start_blank_lines_and_other_line_ends_are_no_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = f'\ufeff{{{AT}, "n": 1}}\r\n\r\n \t\n{{{AT}, "n": 2}}\r\n\n{{"n"\r\n{{{AT}, "n": 3}}'
    files = {"a.json": text.encode(), "empty.json": b"", "blank.json": b"\n\r\n", "mark.json": b"\xef\xbb\xbf"}
    read = reading(spark, tmp_path, "json", 4, files)
    assert read.good == [the(n=1), the(n=2), the(n=3)]
    assert read.bad == [(b'{"n"\r', "not one JSON object")]
    blank = BlankLines()
    assert read_files(spark, Files(str(tmp_path)), THINGS, put(tmp_path, files), blank).count() == 4
    assert blank.total == 5


def test_the_arrival_time_must_be_there_too(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(name="l", columns={"at": "timestamp", "seen": "timestamp"}, event_time="at", arrival_time="seen")
    bad = {
        f"{{{AT}}}": "the arrival time seen is missing",
        f'{{{AT}, "seen": "2500-01-01T00:00:00Z"}}': f"the arrival time seen = 2500-01-01 00:00:00 {OUTSIDE}",
        f'{{{AT}, "seen": "later"}}': 'seen = "later" is not a timestamp',
    }
    files = put(tmp_path, {"a.json": lines(f'{{{AT}, "seen": "2026-01-01T13:00:00Z"}}', *bad)})
    frame = read_files(spark, Files(str(tmp_path)), log, files)
    assert outcome(frame, log, 4).reasons == {line.encode(): reason for line, reason in bad.items()}
    assert frame.where("_error IS NULL AND _arrival = seen AND seen > at").count() == 1


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_X6_a_record_without_a_required_column_is_rejected(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    log = replace(THINGS, required=("n", "id"))
    rows = [{"at": NOON, "id": "a", "n": 1}, {"at": NOON, "id": "b", "n": None}, {"at": NOON, "id": None, "n": None}]
    at = "2026-01-01T12:00:00Z"
    files: dict[str, Any] = {
        "json": lines(f'{{"at": "{at}", "id": "a", "n": 1}}', f'{{"at": "{at}", "id": "b"}}', f'{{"at": "{at}"}}'),
        "csv": lines("at,id,n", f"{at},a,1", f"{at},b,", f"{at},,"),
        "parquet": pa.Table.from_pylist(
            rows, pa.schema({"at": pa.timestamp("us", "UTC"), "id": pa.string(), "n": pa.int64()})
        ),
    }
    read = reading(spark, tmp_path, format, 3, {f"a.{format}": files[format]}, log)
    assert read.good == [the("a", n=1)]
    # The first of a record's missing columns, in the order in which the log names them.
    assert [reason for _, reason in read.bad] == ["the required column n is missing"] * 2


def test_columns_may_have_the_names_that_reading_uses(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(name="l", columns={"value": "timestamp", "r": "string", "path": "bigint"}, event_time="value")
    record = {"value": NOON, "r": "x", "path": 5}
    expected = [(the()[1], "x", 5)]
    line = '{"value": "2026-01-01T12:00:00Z", "r": "x", "path": 5}'
    assert reading(spark, tmp_path, "json", 2, {"a.json": lines(line, "{")}, log).good == expected
    text = lines("value,r,path", "2026-01-01T12:00:00Z,x,5", "-")
    assert reading(spark, tmp_path, "csv", 2, {"a.csv": text}, log).good == expected
    table = pa.Table.from_pylist([record, {"value": None}])
    assert reading(spark, tmp_path, "parquet", 2, {"a.parquet": table}, log).good == expected


# ------------------------------------------------------------------------------------------------------------------ CSV

HEADER = "id,at,n,small,ratio,price,day,ok"
GOOD_CSV = {
    "a,2026-01-01T12:00:00Z,1,-2,0.5,1.25,2026-02-28,true": the(
        "a", n=1, small=-2, ratio=0.5, price=Decimal("1.25"), day=date(2026, 2, 28), ok=True
    ),
    ",2026-01-01T12:00:00Z,,,,,,": the(),
    '"","2026-01-01T12:00:00Z","","","","","",""': the(),
    '"a, b","2026-01-01T12:00:00Z",,,,,,FALSE': the("a, b", ok=False),
    '"say ""hi""",2026-01-01T12:00:00Z,,,,,,': the('say "hi"'),
    "a\\b,2026-01-01T17:00:00+05:00,,,,,,": the("a\\b"),
    '"\\",2026-01-01T12:00:00Z,,,,,,': the("\\"),
    "'quoted',2026-01-01 12:00:00, 5 ,,1e3,.5,,": the("'quoted'", n=5, ratio=1000.0, price=Decimal("0.5")),
    "héé,2026-01-01T12:00:00Z,,,,-0012.500,,": the("héé", price=Decimal("-12.5")),
}
BAD_CSV = {
    "a,2026-01-01T12:00:00Z,1,2": "not one value for each of the 8 columns",
    "a,2026-01-01T12:00:00Z,1,2,3,4,2026-01-01,true,more": "not one value for each of the 8 columns",
    "a": "not one value for each of the 8 columns",
    'a,2026-01-01T12:00:00Z,,,,,,"true': "quotes are not as in RFC 4180",
    '"a"b,2026-01-01T12:00:00Z,,,,,,': "quotes are not as in RFC 4180",
    '"a\\"b",2026-01-01T12:00:00Z,,,,,,': "quotes are not as in RFC 4180",
    'a"b"c,2026-01-01T12:00:00Z,,,,,,': "quotes are not as in RFC 4180",
    "a,,,,,,,": "the event time at is missing",
    "a,noon,,,,,,": "at = noon is not a timestamp",
    "a,12:00,,,,,,": "at = 12:00 is not a timestamp",
    "a,0001-01-01T00:00:00Z,,,,,,": f"the event time at = 0001-01-01 00:00:00 {OUTSIDE}",
    "a,9999-01-01T00:00:00Z,,,,,,": f"the event time at = 9999-01-01 00:00:00 {OUTSIDE}",
    "a,2026-01-01T12:00:00Z,5.0,,,,,": "n = 5.0 is not a bigint",
    "a,2026-01-01T12:00:00Z,99999999999999999999,,,,,": "n = 99999999999999999999 is not a bigint",
    "a,2026-01-01T12:00:00Z,five,2147483648,,,,": "n = five is not a bigint; small = 2147483648 is not a int",
    "a,2026-01-01T12:00:00Z,,,NaN,,,": "ratio = NaN is not a double",
    "a,2026-01-01T12:00:00Z,,,1e999,,,": "ratio = 1e999 is not a double",
    'a,2026-01-01T12:00:00Z,,,"1,000",,,': "ratio = 1,000 is not a double",
    'a,2026-01-01T12:00:00Z,,,,"1,5",,': "price = 1,5 is not a decimal(10,2)",
    "a,2026-01-01T12:00:00Z,,,,1.005,,": "price = 1.005 is not a decimal(10,2)",
    "a,2026-01-01T12:00:00Z,,,,123456789,,": "price = 123456789 is not a decimal(10,2)",
    "a,2026-01-01T12:00:00Z,,,,,2026-02-30,": "day = 2026-02-30 is not a date",
    "a,2026-01-01T12:00:00Z,,,,,,1": "ok = 1 is not a boolean",
}


def test_lines_of_csv_are_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    read = reading(spark, tmp_path, "csv", len(GOOD_CSV), {"a.csv": lines(HEADER, *GOOD_CSV)})
    assert read.bad == []
    assert read.good == list(GOOD_CSV.values())


def test_each_bad_line_of_csv_is_rejected_with_its_bytes_and_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    good, bytes_ = next(iter(GOOD_CSV)), b"\xff\xfe,2026-01-01T12:00:00Z,,,,,,"
    read = reading(spark, tmp_path, "csv", len(BAD_CSV) + 3, {"a.csv": lines(HEADER, good, bytes_, *BAD_CSV, good)})
    expected = {line.encode(): reason for line, reason in BAD_CSV.items()}
    assert read.reasons == {bytes_: "not UTF-8", **expected}
    assert read.good == [GOOD_CSV[good]] * 2


def test_csv_files_may_have_their_columns_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    at = "2026-01-01T12:00:00Z"
    files = {
        "whole.csv": lines("id,at,n,small,ratio,price,day,ok", f"a,{at},1,,,,,"),
        "turned.csv": lines("n,at,id", f"2,{at},b"),
        "quoted.csv": lines('"n","at","id"', f'"3","{at}","c"'),
        "spaced.csv": lines("at, n", f"{at},4"),
        "excel.csv": f"\ufeffat,n\r\n{at},5\r\n\r\n{at},x\r\n".encode(),
        "cat.csv": lines("at,n", f"{at},6", "at,n", f"{at},7"),
        "no_end.csv": f"at,n\n{at},8".encode(),
        "empty.csv": b"",
        "blank.csv": b"\n\n",
        "header.csv": lines("at,n"),
    }
    read = reading(spark, tmp_path, "csv", 9, files)
    assert sorted((n, id) for id, _, n, *_ in read.good if id) == [(1, "a"), (2, "b"), (3, "c")]
    assert sorted(n for _, _, n, *_ in read.good) == list(range(1, 9))
    assert read.bad == [(f"{at},x\r".encode(), "n = x is not a bigint")]


def test_a_csv_file_with_another_header_is_rejected_line_by_line(spark: SparkSession, tmp_path: Path) -> None:
    at = "2026-01-01T12:00:00Z"
    files = {
        "unknown.csv": lines("at,n,more", f"{at},1,2"),
        "no_header.csv": lines(f"{at},1", f"{at},2"),
        "twice.csv": lines("at,n,n", f"{at},1,1"),
        "no_time.csv": lines("id,n", "a,1"),
        "bytes.csv": b"at,\xff\n" + lines(f"{at},3"),
        "open.csv": lines('at,"n', f"{at},4"),
        "good.csv": lines("at,n", f"{at},9"),
    }
    read = reading(spark, tmp_path, "csv", 11, files)
    assert read.good == [the(n=9)]
    unknown = f"unknown column 'more': {DECLARE}"
    assert dict(read.bad) | {None: ""} == {
        b"at,n,more": unknown,
        f"{at},1,2".encode(): unknown,
        f"{at},1".encode(): f"no column 'at'; unknown column '{at}': {DECLARE}; unknown column '1': {DECLARE}",
        f"{at},2".encode(): f"no column 'at'; unknown column '{at}': {DECLARE}; unknown column '1': {DECLARE}",
        b"at,n,n": "column 'n' is there twice",
        f"{at},1,1".encode(): "column 'n' is there twice",
        b"id,n": "no column 'at'",
        b"a,1": "no column 'at'",
        None: "",
    }
    files_ = [reason for raw, reason in read.bad if raw is None]
    assert len(files_) == 2
    assert all(reason.startswith("the file cannot be read as csv: ") for reason in files_)


def test_columns_of_csv_that_are_not_declared_can_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    log, at = replace(THINGS, unknown="ignore"), "2026-01-01T12:00:00Z"
    text = lines("a `name`,AT,n,at", f"x,y,5,{at}", f"x,5,{at}", f",,z,{at}")
    read = reading(spark, tmp_path, "csv", 3, {"a.csv": text}, log)
    assert read.good == [the(n=5)]
    assert read.reasons == {
        f"x,5,{at}".encode(): "not one value for each of the 4 columns",
        f",,z,{at}".encode(): "n = z is not a bigint",
    }


# -------------------------------------------------------------------------------------------------------------- Parquet


def column(name: str, values: list[Any], type: pa.DataType) -> pa.Table:
    """A table with an event time and one more column."""
    at = pa.array([NOON] * len(values), pa.timestamp("us", "UTC"))
    return pa.table({"at": at, name: pa.array(values, type)})


def test_rows_of_parquet_are_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    zone = pa.timestamp("us", "America/New_York")
    early = datetime(1965, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    nanos = pa.array([-157766399876543001, 1767268800123456789], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    rows = {
        "id": pa.array(["a", None]),
        "at": pa.array([NOON, early], zone),
        "n": pa.array([2**63 - 1, None]),
        "small": pa.array([-1, None], pa.int32()),
        "ratio": pa.array([0.5, float("-inf")]),
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
        "day": pa.array([date(2026, 2, 28), None]),
        "ok": pa.array([True, None]),
    }
    files = {
        "all.parquet": pa.table(rows),
        "narrow.parquet": pa.table({"n": pa.array([7], pa.int8()), "at": pa.array([NOON], pa.timestamp("ms", "UTC"))}),
        "float.parquet": column("ratio", [1.5], pa.float32()),
        "decimal.parquet": column("price", [Decimal("2.5")], pa.decimal128(5, 1)),
        "category.parquet": pa.table({"at": [NOON], "id": pa.array(["b"]).dictionary_encode()}),
        "nothing.parquet": column("id", [None], pa.null()),
        "pandas.parquet": pa.table({"at": nanos}),
        "no_rows.parquet": pa.table(rows).slice(0, 0),
    }
    read = reading(spark, tmp_path, "parquet", 9, files)
    assert read.bad == []
    expected = [
        the("a", n=2**63 - 1, small=-1, ratio=0.5, price=Decimal("1.25"), day=date(2026, 2, 28), ok=True),
        the(at=early, ratio=float("-inf")),
        the(n=7),
        the(ratio=1.5),
        the(price=Decimal("2.50")),
        the("b"),
        the(),
        the(at=datetime(1965, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        the(at=NOON.replace(microsecond=123456)),
    ]
    assert sorted(map(repr, read.good)) == sorted(map(repr, expected))


def test_what_spark_itself_writes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("SELECT TIMESTAMP '2026-01-01 12:00:00' AS at, 'a' AS id").write.parquet(str(tmp_path / "out"))
    paths = [f"file:{path}" for path in (tmp_path / "out").glob("*.parquet")]
    assert outcome(read_files(spark, Files("", "parquet"), THINGS, paths), THINGS, 1).good == [the("a")]


def test_rows_of_parquet_without_a_good_event_time_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    at = pa.array([NOON, None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)])
    table = pa.table({"at": at.cast(pa.timestamp("us", "UTC")), "n": [1, 2, 3, 4]})
    read = reading(spark, tmp_path, "parquet", 4, {"a.parquet": table})
    assert read.good == [the(n=1)]
    assert read.bad == [
        (b'{"n":2}', "the event time at is missing"),
        (b'{"at":"0001-01-01T00:00:00.000000Z","n":3}', f"the event time at = 0001-01-01 00:00:00 {OUTSIDE}"),
        (b'{"at":"9999-01-01T00:00:00.000000Z","n":4}', f"the event time at = 9999-01-01 00:00:00 {OUTSIDE}"),
    ]


def test_text_in_parquet_that_is_not_utf8_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    table = pa.table({"at": pa.array([NOON] * 2, pa.timestamp("us", "UTC")), "id": text})
    read = reading(spark, tmp_path, "parquet", 2, {"a.parquet": table})
    assert read.good == [the("a")]
    assert [reason for _, reason in read.bad] == ["id is not UTF-8"]


def test_a_parquet_file_with_other_columns_is_rejected_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    local = pa.table({"at": pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))})
    files = {
        "double.parquet": column("n", [5.0, None], pa.float64()),
        "string.parquet": column("n", ["5"], pa.string()),
        "wide.parquet": column("price", [Decimal("1.005")], pa.decimal128(12, 3)),
        "struct.parquet": column("id", [{"a": 1}], pa.struct({"a": pa.int64()})),
        "unknown.parquet": column("more", [1], pa.int64()),
        "nanos.parquet": column("more", [NOON], pa.timestamp("ns", "UTC")),
        "local.parquet": local,
        "time.parquet": column("n", [None], pa.time64("us")),
        "case.parquet": column("AT", [1], pa.int64()),
        "no_time.parquet": pa.table({"n": [6]}),
        "good.parquet": column("n", [7], pa.int64()),
    }
    read = reading(spark, tmp_path, "parquet", 12, files)
    assert read.good == [the(n=7)]
    # A column of nulls is left out of the row's text.
    assert (b'{"at":"2026-01-01T12:00:00.000000Z"}', "column 'n' is time64[us], declared as bigint") in read.bad
    read.bad.remove((b'{"at":"2026-01-01T12:00:00.000000Z"}', "column 'n' is time64[us], declared as bigint"))
    at = b'"at":"2026-01-01T12:00:00.000000Z"'
    assert read.reasons == {
        b'{%s,"n":5.0}' % at: "column 'n' is double, declared as bigint",
        b"{%s}" % at: "column 'n' is double, declared as bigint",
        b'{%s,"n":"5"}' % at: "column 'n' is string, declared as bigint",
        b'{%s,"price":1.005}' % at: "price = 1.005 is not a decimal(10,2)",
        b'{%s,"id":{"a":1}}' % at: "column 'id' is struct<a: int64>, declared as string",
        b'{%s,"more":1}' % at: f"unknown column 'more': {DECLARE}",
        b'{%s,"more":"2026-01-01T12:00:00.000000000Z"}' % at: f"unknown column 'more': {DECLARE}",
        b'{"at":"2026-01-01T00:00:00.000000"}': "column 'at' is timestamp without a zone, declared as timestamp: "
        'set zone in the log, such as zone="UTC"',
        b'{"n":6}': "no column 'at'",
        b'{%s,"AT":1}' % at: f"unknown column 'AT': {DECLARE}",
    }


def test_columns_of_parquet_that_are_not_declared_can_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    log = replace(THINGS, unknown="ignore")
    files = {"a.parquet": column("more", [1], pa.int64()), "N.parquet": column("N", ["x"], pa.string())}
    assert reading(spark, tmp_path, "parquet", 2, files, log).good == [the(), the()]


def test_a_file_that_is_no_parquet_is_one_rejected_record(spark: SparkSession, tmp_path: Path) -> None:
    files = put(tmp_path, {"whole.parquet": column("n", [1], pa.int64())})
    whole = (tmp_path / "whole.parquet").read_bytes()
    files += put(tmp_path, {"cut.parquet": whole[:-20], "text.parquet": b"{}\n", "empty.parquet": b""})
    files += put(tmp_path, {"footer.parquet": whole[:4] + bytes(len(whole) - 12) + whole[-8:]})
    at = pa.array([NOON], pa.timestamp("us", "UTC"))
    twice = pa.Table.from_arrays([at, pa.array([1]), pa.array([2])], ["at", "n", "n"])
    files += put(tmp_path, {"twice.parquet": twice})
    frame = read_files(spark, Files(str(tmp_path), "parquet"), THINGS, files)
    read = outcome(frame, THINGS, 6)
    assert read.good == [the(n=1)]
    assert all(raw is None for raw, _ in read.bad)
    reasons = {Path(row["_source"]).name: row["_error"] for row in frame.where("_error IS NOT NULL").collect()}
    assert all(
        reasons[f"{name}.parquet"].startswith("the file cannot be read as parquet: ")
        for name in ("cut", "text", "empty", "footer")
    )
    assert reasons["twice.parquet"] == "column 'n' is there twice"
    rows = file_rows(spark, Files("", "parquet"), THINGS, files)
    assert _counted(rows) == _counted(frame.toArrow())


def test_a_file_damaged_further_inside_stops_the_epoch_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = column("id", [f"thing {number}" for number in range(5000)], pa.string())
    files = put(tmp_path, {"a.parquet": table})
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    with pytest.raises(Exception, match=r"a\.parquet"):
        read_files(spark, Files(str(tmp_path), "parquet"), THINGS, files).collect()


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_file_that_is_gone_is_one_rejected_record(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    text = lines(f"{{{AT}}}") if format == "json" else lines("at", "2026-01-01T12:00:00Z")
    there = column("id", [None], pa.string()) if format == "parquet" else text
    files = put(tmp_path, {"there": there, "gone": there})
    (tmp_path / "gone").unlink()
    read = outcome(read_files(spark, Files(str(tmp_path), format), THINGS, files), THINGS, 2)
    assert (read.good, read.bad) == ([the()], [(None, "the file is gone")])


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_no_files_are_no_records(spark: SparkSession, tmp_path: Path, format: Format) -> None:
    assert reading(spark, tmp_path, format, 0, {}) == Outcome([], [])


def test_a_file_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a b", "a%20b", "a[1]{x}*?", "é", "a#b", "it's", "a\\b"]
    json = {f"{name}.json": lines(f'{{{AT}, "n": {place}}}') for place, name in enumerate(names)}
    put(tmp_path / "json", json)
    stream = Files(str(tmp_path / "json")).stream(spark)
    paths: list[str] = []
    query = stream.writeStream.foreachBatch(lambda batch, _: paths.extend(row["path"] for row in batch.collect()))
    query.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start().awaitTermination()
    read = outcome(read_files(spark, Files(""), THINGS, paths), THINGS, len(names))
    assert sorted(row[2] for row in read.good) == list(range(len(names)))
    csv = {f"{name}.csv": lines("at,n", f"2026-01-01T12:00:00Z,{place}") for place, name in enumerate(names)}
    assert len(reading(spark, tmp_path / "csv", "csv", len(names), csv).good) == len(names)
    parquet = {f"{name}.parquet": column("n", [place], pa.int64()) for place, name in enumerate(names)}
    assert len(reading(spark, tmp_path / "parquet", "parquet", len(names), parquet).good) == len(names)


def test_a_file_that_lands_with_an_old_time_is_not_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    paths: list[str] = []

    def drain() -> None:
        query = Files(str(tmp_path / "in")).stream(spark).writeStream
        query = query.foreachBatch(lambda batch, _: paths.extend(row["path"] for row in batch.collect()))
        query.option("checkpointLocation", str(tmp_path / "state")).trigger(
            availableNow=True
        ).start().awaitTermination()

    put(tmp_path / "in", {"new.json": lines("{}")})
    drain()
    put(tmp_path / "in", {"old.json": lines("{}")})
    old = datetime(2001, 1, 1, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "in" / "old.json", (old, old))
    drain()
    assert [Path(path).name for path in paths] == ["new.json", "old.json"]


def test_a_source_that_cannot_be_opened_is_an_error_and_no_rejected_record(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot be (opened|read)"):
        read_files(spark, Files("", "csv"), THINGS, [f"file:{tmp_path}"])
    with pytest.raises(SourceError, match=r"cannot be (opened|read)"):
        read_files(spark, Files("", "csv"), THINGS, ["nowhere://host/a.csv"])


# ---------------------------------------------------------------------------------------------------------------- Kafka


def test_messages_are_read_as_lines_are_and_none_is_passed_over(spark: SparkSession) -> None:
    good = [line.encode() for line in GOOD_JSON]
    bad: dict[bytes | None, str] = {line.encode(): reason for line, reason in BAD_JSON.items()}
    bad |= {None: "there is no value", b"": "not one JSON object", b" \n": "not one JSON object"}
    bad |= {b"\x00\x01\xff": "not UTF-8", b"{" * 50: "not one JSON object"}
    rows = [(value, "things-0", offset, NOON) for offset, value in enumerate([*good, *bad])]
    frame = spark.createDataFrame(rows, "value binary, _source string, _offset bigint, _arrival timestamp")
    result = outcome(read_messages(spark, THINGS, frame), THINGS, len(rows))
    assert result.good == list(GOOD_JSON.values())
    assert result.reasons == bad
    here = outcome(frame_of(spark, message_rows(spark, THINGS, frame)), THINGS, len(rows))
    assert sorted(here.good, key=repr) == sorted(result.good, key=repr)
    assert here.reasons == bad


def test_an_object_over_several_lines_is_one_message(spark: SparkSession) -> None:
    rows = [(f'{{\n  {AT},\n  "n": 1\n}}\n'.encode(), "t-0", 0, NOON)]
    frame = spark.createDataFrame(rows, "value binary, _source string, _offset bigint, _arrival timestamp")
    assert outcome(read_messages(spark, THINGS, frame), THINGS, 1).good == [the(n=1)]
