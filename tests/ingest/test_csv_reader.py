"""Lines of CSV: each is read as the model's reader reads it, with any options and types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import Csv, DefinitionError, Log
from tailrace.cli.commands.look.simulated_sample import read_samples
from tailrace.cli.terminal.usage import LoadError
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.csv_reader import TOGETHER, csv_reader
from tailrace.ingest.line_reader import read_all
from tailrace.ingest.plain_files import read_text
from tailrace.ingest.sources import inspect_files
from tailrace.model.logs.csv_records import CsvRecords
from tailrace.model.logs.json_records import JsonRecords, as_values
from tests.ingest.test_nested_records import TYPES, values
from tests.support.depth import cases
from tests.support.lakes.files import THINGS, counted, said
from tests.support.services.schema_registry import as_lines

AT = "2026-01-01T12:00:00Z"


def by_model(log: Log, header: bytes | None, texts: Sequence[bytes]) -> list[dict[str, Any] | str]:
    """Read each line with the model's own reader; give the record, or the reason for rejecting it."""
    reader, shapes = CsvRecords(log, header), {one.name: one.shape for one in log.shape}
    found = list[dict[str, Any] | str]()
    for text in texts:
        read = reader.read(text)
        found.append(read if isinstance(read, str) else {
            name: as_values(shapes[name], value) if name in shapes else value for name, value in read.items()
        } | counted(log, read))  # fmt: skip
    return found


def read(log: Log, header: bytes | None, *texts: bytes) -> list[dict[str, Any] | str]:
    rows = read_all(csv_reader(log, header), as_lines(list(texts)))
    found = said(log, rows)
    assert found == by_model(log, header, texts)
    bad = rows.filter(pc.is_valid(rows["_error"]))
    assert bad["_raw"].to_pylist() == [texts[place] for place in bad["_offset"].to_pylist()]
    return found


# ------------------------------------------------------------------------------------------------------------ any lines

TEXTS = {
    "id": st.text(max_size=6),
    "at": st.sampled_from([AT, AT, " 2026-01-01 23:59:59.25", "2026-02-30T12:00:00Z", "1850-01-01T00:00:00Z", "2026"]),
    "n": st.integers(-(2**65), 2**65).map(str) | st.sampled_from([" 5 ", "+5", "007", "0x1f", "5.", "1e3", "-", "-0"]),
    "small": st.integers(-(2**33), 2**33).map(str),
    "ratio": st.floats().map(repr) | st.sampled_from([".5", "5.", "+1", " 1e5 ", "1e999", "1e-400", "0", "1_0", "0x1"]),
    "price": st.decimals(-(10**9), 10**9, places=2).map(str)
    | st.sampled_from(["1.005", "7.5000", "1e2", ".5", "-.5", "+1", "0e-400", "123456789", "-0", "NaN", "1_0"]),
    "day": st.dates().map(str) | st.sampled_from(["2023-02-29", " 2026-01-01", "2026-1-1"]),
    "ok": st.sampled_from(["true", "FALSE", "True ", "1", "t"]),
}  # fmt: skip

OPTIONS = st.builds(
    Csv,
    delimiter=st.sampled_from([",", ";", "\t", "|", "^", "§"]),
    quote=st.sampled_from(['"', '"', "'", None]),
    escape=st.sampled_from([None, None, "\\"]),
    null=st.sampled_from(["", "\\N", ("", "NULL"), "x"]),
    encoding=st.sampled_from(["utf-8", "utf-8", "cp1252", "gb18030"]),
    header=st.booleans(),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Log, bytes | None, list[bytes]]:
    """A log with options of CSV, a header, and lines below the header, some of which are spoiled."""
    csv = draw(OPTIONS)
    log = replace(
        THINGS,
        csv=csv,
        fields={"id": "The ID.x", "n": "N"},
        unknown=draw(st.sampled_from(["reject", "ignore"])),
        rounding=draw(st.sampled_from([None, "half_even"])),
    )
    if draw(st.integers(0, 3)) == 0:
        log = replace(log, rest="extra")
    names = [one.name for one in log.shape]
    if csv.header:
        names = draw(st.permutations(names))[: draw(st.integers(1, 8))] + draw(
            st.sampled_from([[], [], ["more"], ["at"]])
        )
        names = list(dict.fromkeys([*names, "at"]))

    def cell(text: str) -> str:
        kind = draw(st.integers(0, 5))
        if kind == 0 or (csv.quote and kind < 4 and set(text) & {csv.delimiter, csv.quote}):
            quote = csv.quote or ""
            return f"{quote}{text.replace(quote, quote * 2) if quote else text}{quote}"
        return text

    places = {".".join(one.place) for one in log.shape}
    heads = [{"id": "The ID.x", "n": "N"}.get(name, name) for name in names]
    assert not csv.header or "N" in places
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        texts = [draw(TEXTS.get(name, TEXTS["id"]) | st.sampled_from(["", "NULL", "\\N"])) for name in names]
        if draw(st.integers(0, 3)):
            texts = [
                AT if name == "at" else draw(st.sampled_from(["", text]))
                for name, text in zip(names, texts, strict=True)
            ]
        line = csv.delimiter.join(map(cell, texts)).replace("\n", " ")
        line += draw(st.sampled_from(["", "", "\r", csv.delimiter, '"', "\\", " "]))
        lines.append(
            line.encode(csv.encoding, errors="replace") + draw(st.sampled_from([b""] * 20 + [b"\xff", b"\x81"]))
        )
    header = csv.delimiter.join(heads).encode(csv.encoding) if csv.header else None
    return log, header, lines


@settings(max_examples=cases(400))
@given(tables())
def test_X6_a_line_of_csv_is_read_as_the_model_does(made: tuple[Log, bytes | None, list[bytes]]) -> None:
    log, header, lines = made
    read(log, header, *lines)


# ---------------------------------------------------------------------------------------------------------- any records


@st.composite
def records(draw: st.DrawFn) -> tuple[Log, list[dict[str, Any]]]:
    """A log of any nested columns, and records of it whose values may not fit."""
    types = draw(st.lists(TYPES, min_size=1, max_size=4))
    columns = {f"c{place}": type for place, type in enumerate(types)}
    log = Log(
        name="any", columns={"at": "timestamp", **columns}, event_time="at", unknown="ignore",
        fields={name: f"`The {name}, \"quoted\"`" for name in columns}, csv=Csv(null="-"),
    )  # fmt: skip
    made = [{"at": AT} | {n: draw(values(t)) for n, t in columns.items()} for _ in range(draw(st.integers(1, 5)))]
    return log, made


def as_cell(type: str, value: Any) -> str | None:
    """The text of a value in a cell of CSV; None for a value of another kind than a cell of this type can have."""
    if value is None:
        return "-"
    if type == "json" or "<" in type:
        return json.dumps(value, ensure_ascii=False)
    texts = type in ("string", "binary", "date", "timestamp", "time")
    if (
        texts != isinstance(value, str)
        or (type == "boolean") != isinstance(value, bool)
        or isinstance(value, list | dict)
    ):
        return None
    return value if isinstance(value, str) else json.dumps(value)


@settings(max_examples=cases(150))
@given(records())
def test_X6_nested_records_in_cells_of_csv_are_the_records_of_json_lines(
    made: tuple[Log, list[dict[str, Any]]],
) -> None:
    """A cell is a text, so a number in a text, or null in a column of JSON, has no twin in JSON."""
    log, given = made
    names = {one.name: one.place[0] for one in log.shape}

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    lines, twins = list[bytes](), list[bytes]()
    for record in given:
        cells = [as_cell(log.declared[name], value) for name, value in record.items()]
        whole = [cell for cell in cells if cell is not None]
        if (
            len(whole) == len(cells)
            and not any(set(cell) & set("\r\n") for cell in whole)
            and "-" not in record.values()
        ):
            lines.append(",".join(map(quoted, whole)).encode(errors="surrogatepass"))
            twins.append(json.dumps({names[n]: v for n, v in record.items()}).encode(errors="surrogatepass"))
    header = ",".join(quoted(names[name]) for name in log.columns).encode()
    expected = [JsonRecords(log).read(one) for one in twins]
    found = read(log, header, *lines)
    shapes = {one.name: one.shape for one in log.shape}
    for got, twin in zip(found, expected, strict=True):
        if isinstance(twin, str):
            assert isinstance(got, str)
        else:
            assert got == {name: as_values(shapes[name], value) for name, value in twin.items()}


# ------------------------------------------------------------------------------------------------------------- examples

ORDERS = Log(
    name="orders",
    columns={"id": "bigint", "at": "timestamp", "paid": "date", "opens": "time", "weight": "float", "key": "binary"},
    fields={"id": "`Order no.`", "at": "created.at"}, instants={"at": "milliseconds", "paid": "%d.%m.%Y"},
    event_time="at", rest="extra", csv=Csv(delimiter=";", null=("", "NULL"), encoding="cp1252"),
)  # fmt: skip
HEADER = "Order no.;created.at;paid;opens;weight;key;Straße;x"


def test_places_forms_and_undeclared_columns_are_those_of_the_log() -> None:
    (found,) = read(
        ORDERS,
        HEADER.encode("cp1252"),
        '7;1767268800123;28.02.2026;"08:30";0.1;AAH/;"Käse; ""rot""";NULL'.encode("cp1252"),
    )
    assert isinstance(found, dict)
    assert (found["id"], found["at"].isoformat()) == (7, "2026-01-01T12:00:00.123000+00:00")
    assert (str(found["paid"]), found["opens"], found["key"]) == ("2026-02-28", "08:30:00.000000", b"\x00\x01\xff")
    assert found["weight"] == pytest.approx(0.1)
    assert json.loads(found["extra"]) == {"Straße": 'Käse; "rot"', "x": None}


def test_lines_without_a_header_have_the_columns_in_the_order_of_the_log() -> None:
    log = replace(THINGS, csv=Csv(header=False, delimiter="|", quote=None, escape="\\", null="\\N"))
    found = read(log, None, f'a\\|"b|{AT}|1|\\N|\\N|\\N|\\N|\\N'.encode(), b"id|at|n|small|ratio|price|day|ok", b"a|b")
    assert isinstance(found[0], dict)
    assert (found[0]["id"], found[0]["n"], found[0]["small"]) == ('a|"b', 1, None)
    assert found[1:] == [
        "at = at is not a timestamp; n = n is not a bigint; small = small is not a int; ratio = ratio is not a double; "
        "price = price is not a decimal(10,2); day = day is not a date; ok = ok is not a boolean",
        "not one value for each of the 8 columns",
    ]


MISFITS: Mapping[str, str] = {
    '[{""price"":1},{""price"":""x""}]': 'c[1].price = "x" is not a double',
    '[{""price"":1}': 'c = [{"price":1} is not JSON',
    "[null]]": "c = [null]] is not JSON",
    '[{""more"":1}]': 'unknown column c[0].more: declare it in the log, or set unknown="ignore"',
    '[{""price"":1,""price"":1}]': "a column is there twice",
    "{}": "c = {} is not a list",
    "[" * 501 + "]" * 501: "c is nested more than 500 levels deep",
}


@pytest.mark.parametrize("cell", MISFITS)
def test_X6_a_nested_cell_that_does_not_fit_is_rejected_with_its_place(cell: str) -> None:
    log = Log(name="l", columns={"at": "timestamp", "c": "array<struct<price:double>>"}, event_time="at")
    assert read(log, b"at,c", f'{AT},"{cell}"'.encode()) == [MISFITS[cell]]


def test_X6_one_bad_line_among_thousands_costs_itself() -> None:
    good = f"{AT},1".encode()
    for bad, reason in ((b"noon,1", "at = noon is not a timestamp"), (b'"', "quotes are not as in RFC 4180"),
                        (b"1,2,3", "not one value for each of the 2 columns"), (b"\xff,1", "not UTF-8")):  # fmt: skip
        for place in (0, TOGETHER - 1, TOGETHER, TOGETHER + 7):
            texts = [good] * (TOGETHER + 8)
            texts[place] = bad
            rows = read_all(csv_reader(THINGS, b"at,n"), as_lines(texts))
            wrong = rows.filter(pc.is_valid(rows["_error"]))
            assert (wrong["_offset"].to_pylist(), wrong["_error"].to_pylist()) == ([place], [reason])
            assert pc.unique(rows.filter(pc.is_null(rows["_error"]))["n"]).to_pylist() == [1]


def test_options_that_divide_no_line_are_refused_with_every_fault() -> None:
    with pytest.raises(DefinitionError) as refused:
        Csv(delimiter="||", quote="", null=7, encoding="utf-16", header=1)  # type: ignore[arg-type]
    assert [fault.path for fault in refused.value.faults] == [
        "csv.delimiter", "csv.quote", "csv.null", "csv.encoding", "csv.header"
    ]  # fmt: skip
    for options in ({"delimiter": '"'}, {"delimiter": "\n"}, {"null": "a,b"}, {"encoding": "latin-2000"}):
        with pytest.raises(DefinitionError):
            Csv(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("declared", ["utf-8", "cp1252"])
def test_a_file_in_utf_16_is_rejected_with_what_to_do(tmp_path: Path, encoding: str, declared: str) -> None:
    log = Log(name="l", columns={"at": "timestamp", "who": "string"}, event_time="at", csv=Csv(encoding=declared))
    file = tmp_path / "a.csv"
    file.write_bytes("at,who\n2026-01-01T12:00:00Z,é\n".encode(encoding))
    (found,) = inspect_files(log, "csv", [f"file:{file}"])
    assert "it looks like UTF-16: convert it to UTF-8, for example with iconv -f UTF-16" in found.broken
    # This process leaves such a file to that inspection, as an epoch on Spark does.
    assert read_text(log, "csv", [f"file:{file}"], BlankLines()) is None
    with pytest.raises(LoadError, match="it looks like UTF-16"):
        read_samples([log], file)
    file.write_bytes(file.read_bytes().decode(encoding).encode(declared))
    ((_, sample),) = read_samples([log], file)
    assert [record["who"] for record in sample.records] == ["é"]
