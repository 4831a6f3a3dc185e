"""`tailrace simulate`: what it reads, what it rejects, and that it shows what the reference execution gives."""

from __future__ import annotations

import gzip
import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.generate.delivery import MINUTE
from tailrace.generate.delivery_files import land
from tailrace.generate.nexmark import auctions
from tailrace.generate.searches import searches
from tailrace.model.base.time import instant
from tailrace.model.samples import sample_records
from tailrace.model.step.reference import fold
from tailrace.model.windows.panes import answers
from tests.support.cases.strategies import LOG, bundles, examples, pipelines
from tests.support.checks.batch_answers import batch

DEFINITION = """
from tailrace import *
log = Log(
    name="sales",
    columns={"shop": "string", "price": "decimal(8,2)", "paid": "boolean", "on": "date", "at": "timestamp"},
    event_time="at",
    disorder=seconds(30),
)
sales = Pipeline(
    name="sales_by_minute",
    log=log,
    key="shop",
    what={"total": Sum("price"), "sales": Count()},
    where=Fixed(minutes(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=minutes(5),
)
"""
ROWS: list[dict[str, Any]] = [
    {"shop": "a", "price": "1.50", "paid": True, "on": "2024-01-01", "at": "2024-01-01T00:00:10Z"},
    {"shop": "b", "price": "2.00", "paid": False, "on": None, "at": "2024-01-01T00:00:50Z"},
    {"shop": "a", "price": None, "paid": None, "on": None, "at": "2024-01-01T00:02:10Z"},
    {"shop": "a", "price": "4.25", "paid": True, "on": None, "at": "2024-01-01T00:00:20Z"},
]


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    file = tmp_path / "sales.py"
    file.write_text(DEFINITION)
    return file


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    file = tmp_path / "sales.jsonl"
    lines = [re.sub(r'"(\d+\.\d+)"', r"\1", json.dumps(row)) for row in ROWS]
    file.write_text("\n".join(lines) + "\n")
    return file


def simulated(*args: object, status: int = 0) -> Any:
    done = CliRunner().invoke(app, ["simulate", *map(str, args), "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout) if status == 0 else done.stderr


def test_it_shows_early_late_and_retracted_panes(definition: Path, sample: Path) -> None:
    panes = simulated(definition, sample, "--key", "a")["panes"]
    told = [(one["values"]["total"], one["timing"], one["retraction"]) for one in panes]
    assert told == [
        ("1.50", "early", False),
        ("1.50", "on_time", True),
        ("1.50", "on_time", False),
        (None, "early", False),
        ("1.50", "late", True),
        ("5.75", "late", False),
        (None, "on_time", True),
        (None, "on_time", False),
    ]
    shown = CliRunner().invoke(app, ["simulate", str(definition), str(sample)])
    assert shown.exit_code == 0
    assert "5.75" in shown.stdout
    assert "−" in shown.stdout


def test_json_csv_and_parquet_say_the_same(definition: Path, sample: Path, tmp_path: Path) -> None:
    text = tmp_path / "sales.csv"
    cells = [[str(v).lower() if isinstance(v, bool) else v or "" for v in row.values()] for row in ROWS]
    text.write_text("\n".join([",".join(ROWS[0]), *(",".join(row) for row in cells)]) + "\n")
    rows = [row | {"price": row["price"] and Decimal(str(row["price"]))} for row in ROWS]
    table = pa.Table.from_pylist([{**row, "on": None, "at": None} for row in rows]).drop_columns(["on", "at"])
    at = pa.array([datetime.fromisoformat(str(row["at"])) for row in ROWS])
    pq.write_table(table.append_column("at", at), tmp_path / "sales.parquet")
    expected = simulated(definition, sample)
    assert simulated(definition, text) == expected
    assert simulated(definition, tmp_path / "sales.parquet") == expected


def test_a_sample_may_be_compressed_an_array_or_in_folders_with_values(definition: Path, tmp_path: Path) -> None:
    text = definition.read_text().replace('event_time="at"', 'event_time="at", folders="shop"')
    definition.write_text(text.replace('key="shop"', "key=()"))
    rows = [{name: value for name, value in row.items() if name not in ("shop", "price")} for row in ROWS]
    for shop, part, pack in (("a", rows[:2], gzip.compress), ("b%2F", rows[2:], bytes)):
        folder = tmp_path / "in" / f"shop={shop}"
        folder.mkdir(parents=True)
        (folder / ("x.json" if pack is bytes else "x.json.gz")).write_bytes(pack(json.dumps(part, indent=1).encode()))
    (tmp_path / "in" / "shop=a" / ".hidden").write_text("{}")
    found = simulated(definition, tmp_path / "in")
    assert (found["records"], found["rejected"]) == (4, [])


def test_X6_every_line_is_a_record_or_rejected_with_its_reason(definition: Path, tmp_path: Path) -> None:
    bad = {
        "{": "not one JSON object",
        "[1]": "not one JSON object",
        '{"shop": "a"}': "the event time at is missing",
        '{"at": "yesterday"}': 'at = "yesterday" is not a timestamp',
        '{"at": "0001-01-01T00:00:00Z"}': "lies outside",
        '{"at": "2024-01-01T00:00:00Z", "price": "1.50"}': 'price = "1.50" is not a decimal(8,2)',
        '{"at": "9999-12-31T23:59:59-05:00"}': "lies outside",
        "[" * 100_000: "not one JSON object",
        '{"at": ' + "[" * 1_000 + "]" * 1_000 + "}": "nested more than 500 levels deep",
        '{"at": ' + "1" * 100_000 + "}": "at = 1111111111",
        '{"at": "2024-01-01T00:00:00Z", "price": 1.505}': "price = 1.505 is not a decimal(8,2)",
        '{"at": "2024-01-01T00:00:00Z", "price": 1234567.00}': "price = 1234567.00 is not a decimal(8,2)",
        '{"at": "2024-01-01T00:00:00Z", "shop": 7}': "shop = 7 is not a string",
        '{"at": "2024-01-01T00:00:00Z", "paid": 1}': "paid = 1 is not a boolean",
        '{"at": "2024-01-01T00:00:00Z", "on": "1.1.24"}': "is not a date",
        '{"at": "2024-01-01T00:00:00Z", "size": 7}': "unknown column size: declare it in the log",
    }
    file = tmp_path / "bad.jsonl"
    file.write_text("\n".join([*bad, '{"at": "2024-01-01T00:00:00Z"}', ""]))
    found = simulated(definition, file)
    assert found["records"] == 1
    assert [one["line"] for one in found["rejected"]] == list(range(1, len(bad) + 1))
    for one, expected in zip(found["rejected"], bad.values(), strict=True):
        assert expected in one["reason"]


def test_epochs_by_number_and_by_time_end_in_the_same_answers(definition: Path, sample: Path) -> None:
    def last(*how: str) -> dict[Any, Any]:
        return {
            (*one["key"], *one["window"]): one["answer"]
            for one in simulated(definition, sample, *how)["panes"]
            if not one["retraction"]
        }

    assert last("--per-epoch", "3") == last("--every", "60") == last()
    assert simulated(definition, sample, "--per-epoch", "3")["epochs"] == 3


def test_a_folder_is_the_files_in_it_in_the_order_of_their_names(
    definition: Path, sample: Path, tmp_path: Path
) -> None:
    folder, lines = tmp_path / "folder", sample.read_text().splitlines(keepends=True)
    folder.mkdir()
    for name, some in (("b.jsonl", lines[2:]), ("a.jsonl", lines[:2]), (".c.jsonl", lines)):
        (folder / name).write_text("".join(some))
    assert simulated(definition, folder) == simulated(definition, sample)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "an empty folder" in simulated(definition, empty, status=2)


def test_X5_what_comes_again_is_dropped_while_it_is_remembered(definition: Path, sample: Path, tmp_path: Path) -> None:
    identified = DEFINITION.replace(
        'event_time="at",', 'event_time="at", record_id=("shop", "at"), remembered=seconds(100),'
    )
    definition.write_text(identified)
    lines = sample.read_text().splitlines(keepends=True)
    twice = tmp_path / "twice.jsonl"
    # The first comes again at once, and once more when it is forgotten.
    twice.write_text("".join([lines[0], lines[0], lines[1], lines[2], lines[0]]))
    found, plain = simulated(definition, twice), simulated(definition, sample)
    assert (found["records"], found["duplicates"]) == (4, 1)
    assert (plain["records"], plain["duplicates"]) == (4, 0)
    twice.write_text(json.dumps({"at": "2024-01-01T00:00:00Z"}) + "\n")
    assert simulated(definition, twice)["rejected"] == [{"line": 1, "reason": "the record id shop is missing"}]


def test_X6_a_record_without_a_required_column_is_rejected(definition: Path, tmp_path: Path) -> None:
    definition.write_text(DEFINITION.replace('event_time="at",', 'event_time="at", required="shop",'))
    bare = tmp_path / "bare.jsonl"
    bare.write_text(json.dumps({"at": "2024-01-01T00:00:00Z"}) + "\n")
    assert simulated(definition, bare)["rejected"] == [{"line": 1, "reason": "the required column shop is missing"}]


def test_open_leaves_the_windows_open(definition: Path, sample: Path) -> None:
    assert simulated(definition, sample, "--open")["open_windows"] == 3
    assert simulated(definition, sample)["open_windows"] == 0


def test_by_arrival_a_sample_has_the_windows_of_the_time_at_which_it_comes(definition: Path, sample: Path) -> None:
    text = (
        definition.read_text()
        .replace("log=log", "log=Arrivals(of=log)")
        .replace("Fixed(minutes(1))", "Fixed(hours(1))")
    )
    definition.write_text(text)
    panes = simulated(definition, sample, "--key", "a", "--per-epoch", 4)["panes"]
    # No record says when it came, so it came at its event time, or with the one before it that is later.
    assert [(one["timing"], one["settled_index"], one["last"], one["values"]) for one in panes] == [
        ("early", None, False, {"total": "5.75", "sales": 3}),
        ("on_time", None, None, {"total": "5.75", "sales": 3}),
        ("on_time", 0, True, {"total": "5.75", "sales": 3}),
    ]


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with two logs: that of queries, and that of the clicks on what they found."""
    made = searches(rate=0.3, length=40 * MINUTE, seed=3, first=0)
    list(land(made, tmp_path / "engine", every=10 * MINUTE, instants=("at", "known")))
    return tmp_path / "engine"


@pytest.mark.parametrize("per_epoch", [1, 40, 10_000])
def test_X6_of_two_logs_each_click_is_joined_once_in_whatever_epochs(engine: Path, per_epoch: int) -> None:
    made = simulated("pipelines/log_join.py:clicks_of_queries", engine, "--per-epoch", per_epoch)
    logs = {
        log: [json.loads(line) for file in sorted((engine / log).iterdir()) for line in file.read_text().splitlines()]
        for log in ("searches", "clicks")
    }
    asked = {one["query_id"]: one for one in logs["searches"]}
    clicks = {one["click_id"]: one for one in logs["clicks"]}
    late = sum(one["side"] == "right" for one in made["late"])
    assert made["records"] == len(asked) + len(clicks)
    assert made["records"] + made["duplicates"] == sum(map(len, logs.values()))
    assert len(made["rows"]) == len(clicks) - late
    joined = [row["values"] for row in made["rows"] if row["values"]["term"] is not None]
    assert joined
    assert {(row["query_id"], row["term"]) for row in joined} <= {(name, one["term"]) for name, one in asked.items()}
    assert not late or per_epoch < 10_000


def test_what_reads_a_join_is_folded_over_what_it_gives(engine: Path) -> None:
    made = simulated("pipelines/log_join.py", engine, "--every", 60)
    told: dict[tuple[Any, ...], int] = {}
    for pane in made["panes"]:
        told[(*pane["key"], *pane["window"])] = 0 if pane["retraction"] else pane["values"]["clicks"]
    rows = simulated("pipelines/log_join.py:clicks_of_queries", engine, "--every", 60)["rows"]
    assert sum(told.values()) == len(rows) - len(made["late"]) > 100
    clicks = simulated("pipelines/photon.py", engine, "--every", 60)["productions"]
    assert {one["values"]["outcome"] for one in clicks} == {"joined", "unjoinable"}


def test_answers_of_all_of_time_are_drawn_when_they_become_known(tmp_path: Path) -> None:
    made = auctions(rate=30, length=MINUTE, seed=1, first=0)
    list(land(made, tmp_path / "house", every=MINUTE, instants=("date_time", "expires")))
    page = tmp_path / "prices.html"
    told = simulated("pipelines/final_prices.py", tmp_path / "house", "--every", 20, "--open", "--html", page)
    assert {one["last"] for one in told["panes"]} == {False}
    assert "prices_of_categories, simulated" in page.read_text()


def test_the_sample_of_one_of_several_logs_may_be_a_compressed_file(engine: Path) -> None:
    expected = simulated("pipelines/log_join.py:clicks_of_queries", engine, "--every", 60)
    for log in ("searches", "clicks"):
        whole = b"".join(file.read_bytes() for file in sorted((engine / log).iterdir()))
        (engine / log).rename(engine / f"_{log}")
        (engine / f"{log}.jsonl.gz").write_bytes(gzip.compress(whole))
    assert simulated("pipelines/log_join.py:clicks_of_queries", engine, "--every", 60) == expected


def test_a_log_that_is_not_in_the_sample_is_named(engine: Path) -> None:
    (engine / "clicks").rename(engine / "others")
    said = simulated("pipelines/log_join.py", engine, status=2)
    assert "nothing of log clicks in it: expected a folder with a file or a folder for each of" in " ".join(
        said.split()
    )


@pytest.mark.slow
def test_the_plot_is_a_page_and_a_picture(definition: Path, sample: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "out" / "plot.html", tmp_path / "out" / "plot.png"
    simulated(definition, sample, "--html", page, "--png", picture, "--result", "sales")
    assert "<svg" in page.read_text()
    assert "shop = a" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_papers_figures_come_out_on_one_page(tmp_path: Path) -> None:
    assert len(simulated("--paper", tmp_path)["files"]) == 11
    page = (tmp_path / "paper.html").read_text()
    assert page.count("<svg") == 10
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert not re.findall(r"url\(#(?!figure-)", page)
    assert "http:" not in re.sub(r'xmlns(:\w+)?="http[^"]*"', "", page)
    assert "https:" not in page
    assert (tmp_path / "figure_14.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "a definition and a sample are wanted"),
        (["{definition}"], "a definition and a sample are wanted"),
        (["{definition}", "nowhere.jsonl"], "no such file"),
        (["{definition}", "{definition}"], ".parquet or .avro"),
        (["{definition}", "{sample}", "--key", "z"], "the keys with the most are a, b"),
        (["{definition}", "{sample}", "--result", "z", "--html", "x.html"], "expected one of total, sales"),
        (["{definition}", "{sample}", "--every", "0"], "more than no time"),
    ],
)
def test_what_makes_no_sense_is_said(definition: Path, sample: Path, given: list[str], expected: str) -> None:
    said = simulated(*(one.format(definition=definition, sample=sample) for one in given), status=2)
    assert expected in " ".join(said.split())


@examples(40)
@given(pipelines(), bundles(max_size=12))
def test_L1_a_sample_that_ends_gives_the_batch_answer(pipeline: Any, records: list[dict[str, Any]]) -> None:
    for per_epoch in (1, 5, 100):
        run = fold(pipeline, sample_records.epochs(pipeline.log, records, per_epoch=per_epoch))
        assert not run.state.windows
        assert answers(run.panes) == batch(pipeline, records, run.late)
    period = timedelta(seconds=7)
    clocks = [clock for _, clock in sample_records.epochs(LOG, records, every=period, ends=False)]
    assert all(clock.processing_time % (7 * 10**6) == 0 for clock in clocks)
    assert len(clocks) <= len({instant(record["at"]) for record in records})


VISITS = """
from tailrace import *
from tailrace.model.samples.visits import Visits
log = Log(name="clicks", columns={"who": "string", "at": "timestamp"}, event_time="at", disorder=seconds(20))
visits = Visits(name="visits", log=log, key="who", ordered=True)
"""


def test_of_a_computation_it_shows_what_is_produced_and_what_came_too_late(tmp_path: Path) -> None:
    definition, sample, picture = tmp_path / "visits.py", tmp_path / "clicks.jsonl", tmp_path / "visits.png"
    definition.write_text(VISITS)
    clicks = [("a", "00:00:00"), ("a", "00:00:10"), ("b", "00:05:00"), ("a", "00:01:00"), ("b", "00:05:05")]
    sample.write_text("\n".join(json.dumps({"who": who, "at": f"2024-01-01T{at}Z"}) for who, at in clicks))
    found = simulated(definition, sample, "--png", picture, "--scale", "1", "--result", "clicks")
    told = [(one["key"], one["values"], one["epoch"], one["event_time"]) for one in found["productions"]]
    assert told == [
        (["a"], {"clicks": 2}, 2, "2024-01-01T00:00:00Z"),
        (["b"], {"clicks": 2}, 5, "2024-01-01T00:05:00Z"),
    ]
    assert [(one["key"], one["epoch"], one["behind_seconds"]) for one in found["late"]] == [(["a"], 3, 220.0)]
    assert (found["records"], found["epochs"]) == (5, 6)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [one["key"] for one in simulated(definition, sample, "--key", "b")["productions"]] == [["b"]]
    assert simulated(definition, sample, "--open")["productions"] == found["productions"][:1]
    assert "expected one of clicks" in simulated(definition, sample, "--result", "z", "--png", picture, status=2)
    shown = CliRunner().invoke(app, ["simulate", str(definition), str(sample)])
    assert shown.exit_code == 0
    assert "Visits by who" in shown.stdout
    assert "too late" in shown.stdout
