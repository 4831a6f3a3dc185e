"""The benchmarks' data, comparison and arithmetic; what needs no Spark."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

# The folder `benchmarks` is not installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks import bounded, measure, run
from benchmarks.cases import CASES, LARGE, Plan, Result, steady
from benchmarks.compare import DifferentError, answers, differences, expected, same
from benchmarks.data import BEGIN, DISORDER, SCHEMA, SEED, VIEWS_A_FILE, WARM_UP_SEED, WINDOW, file_of_views, views
from benchmarks.many_cores import numbers_of_cores, told
from benchmarks.measure import Outcome, Task, environment


def result(ours: float, theirs: float, target: float | None) -> Result:
    memory = {f"{side}_together": 200.0 for side in ("ours", "theirs")}
    return Result("B1", "something", 1, "s", ours, theirs, 3, target, memory_mb=memory)


def row(advertiser: int, total: int, views: int = 1) -> dict[str, object]:
    return {"advertiser": advertiser, "window_start": BEGIN, "total": total, "views": views}


def table(*rows: dict[str, object]) -> pa.Table:
    schema = [("advertiser", pa.int64()), ("window_start", pa.timestamp("us", "UTC"))]
    return pa.Table.from_pylist(list(rows), schema=pa.schema([*schema, ("total", pa.int64()), ("views", pa.int64())]))


def test_a_file_is_the_same_each_time_and_another_seeds_is_not() -> None:
    assert file_of_views(3).equals(file_of_views(3))
    assert not file_of_views(3).equals(file_of_views(3, WARM_UP_SEED))


def test_no_view_is_further_behind_the_latest_before_it_than_the_disorder() -> None:
    at = pa.concat_tables([file_of_views(0), file_of_views(1)])["viewed_at"]
    micros = at.cast(pa.int64())
    behind = pc.subtract(pc.cumulative_max(micros), micros)
    assert pc.max(behind).as_py() < DISORDER / timedelta(microseconds=1)
    assert pc.max(behind).as_py() > 0.9 * (DISORDER / timedelta(microseconds=1))
    assert pc.min(at).as_py() >= BEGIN


def test_the_popular_advertisers_have_most_of_the_views() -> None:
    counts = sorted(pc.value_counts(file_of_views(1)["advertiser"]).field("counts").to_pylist(), reverse=True)
    assert sum(counts[:100]) > 0.4 * VIEWS_A_FILE
    assert len(counts) > 5000


def test_five_million_views_fill_thirty_intervals(tmp_path: Path) -> None:
    small = views(tmp_path, VIEWS_A_FILE)
    whole = type(small)(small.folder, 100)
    assert whole.events == 5_000_000
    intervals = list(whole.intervals())
    assert len(intervals) == 30
    assert intervals[0][0] == BEGIN
    assert intervals[-1][1] == whole.end == BEGIN + timedelta(hours=1)
    assert list(small.intervals()) == [(BEGIN, BEGIN + WINDOW)]


def test_a_smaller_set_is_the_beginning_of_a_larger_one_in_the_order_of_file_times(tmp_path: Path) -> None:
    few, more = views(tmp_path, VIEWS_A_FILE), views(tmp_path, 3 * VIEWS_A_FILE)
    assert [file.name for file in few.folder.iterdir()] == ["00000.parquet"]
    files = sorted(more.folder.iterdir(), key=lambda file: file.stat().st_mtime)
    assert [file.name for file in files] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    assert pq.read_table(files[2]).equals(file_of_views(2, SEED))
    assert pq.read_schema(files[0]).equals(SCHEMA)


@pytest.mark.parametrize("events", [0, -50_000, 1])
def test_events_come_in_whole_files(tmp_path: Path, events: int) -> None:
    with pytest.raises(ValueError, match="multiple of 50000"):
        views(tmp_path, events)


def test_the_expected_answers_count_every_view_once_in_its_window(tmp_path: Path) -> None:
    small = views(tmp_path, 3 * VIEWS_A_FILE)
    found, rows = expected(small.folder), pq.read_table(small.folder)
    assert pc.sum(found["views"]).as_py() == 3 * VIEWS_A_FILE
    assert pc.sum(found["total"]).as_py() == pc.sum(rows["price"]).as_py()
    assert set(found["window_start"].to_pylist()) == {BEGIN}
    one = found.slice(0, 1).to_pylist()[0]
    its = rows.filter(pc.equal(rows["advertiser"], one["advertiser"]))
    assert (pc.sum(its["price"]).as_py(), its.num_rows) == (one["total"], one["views"])


def test_answers_are_the_same_in_any_order() -> None:
    assert differences(answers(table(row(2, 5), row(1, 7))), answers(table(row(1, 7), row(2, 5)))) == []


def test_a_difference_is_named_with_its_side() -> None:
    found = differences(answers(table(row(1, 7), row(2, 5))), answers(table(row(1, 8), row(2, 5))))
    assert [line[0] for line in found] == ["-", "+"]
    assert "'total': 7" in found[0]
    assert "'total': 8" in found[1]


def test_a_row_that_is_there_twice_is_a_difference() -> None:
    once, twice = answers(table(row(1, 7))), answers(table(row(1, 7), row(1, 7)))
    assert differences(once, twice) == ["the same rows, but 1 times here and 2 times there"]


def test_answers_that_are_wrong_are_no_result(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.parquet", tmp_path / "wrong.parquet"
    pq.write_table(table(row(1, 7)), right)
    pq.write_table(table(row(1, 8)), wrong)
    truth = answers(table(row(1, 7)))
    assert same([right], truth) == 1
    with pytest.raises(DifferentError, match=r"wrong\.parquet is not what was expected"):
        same([right, wrong], truth)


def test_a_steady_epoch_counts_what_every_tenth_costs() -> None:
    tenth = [1.0] * 9 + [3.0]
    assert steady([9.0] * 50 + tenth * 5) == pytest.approx(1.2)


def test_a_steady_epoch_of_few_is_the_mean_of_their_second_half() -> None:
    assert steady([9.0, 9.0, 1.0, 2.0]) == 1.5


@pytest.mark.parametrize(("ours", "target", "met"), [(0.5, 2.0, True), (0.6, 2.0, False), (0.6, None, None)])
def test_a_target_is_met_or_missed_by_the_ratio(ours: float, target: float | None, met: bool | None) -> None:
    assert result(ours, 1.0, target).met is met


def test_results_are_written_with_ratio_unit_and_runs(tmp_path: Path) -> None:
    run.write([result(0.5, 1.0, 2.0)], tmp_path / "bench" / "results.json")
    (one,) = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert {name: one[name] for name in ("name", "ratio", "unit", "ours", "theirs", "runs", "met")} == {
        "name": "B1",
        "ratio": 2.0,
        "unit": "s",
        "ours": 0.5,
        "theirs": 1.0,
        "runs": 3,
        "met": True,
    }


def test_the_table_shows_a_missed_target_as_missed() -> None:
    cells = run.table([result(1.0, 1.0, 2.0), result(0.5, 1.0, 2.0)]).columns[6].cells
    assert ["missed" in str(cell) for cell in cells] == [True, False]


def test_quick_is_one_run_of_a_million_and_the_rest_can_still_be_said() -> None:
    usual = [name for name in CASES if name not in LARGE]
    assert (run.arguments([]).runs, run.arguments([]).events, run.arguments([]).only) == (3, 5_000_000, usual)
    quick = run.arguments(["--quick", "--only", "B2", "B3"])
    assert (quick.runs, quick.events, quick.only) == (1, 1_000_000, ["B2", "B3"])
    assert run.arguments(["--quick", "--runs", "5", "--events", "500000"]).events == 500_000


def test_a_case_that_fails_is_said_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(plan: Plan, events: int, target: float | None) -> Result:
        raise DifferentError("not the same rows")

    cases = {"B1": (fails, {"auto": 0.9}), "B2": (lambda plan, events, target: result(1.0, 1.0, target), {"auto": 2.0})}
    monkeypatch.setattr(run, "CASES", cases)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "FOLDER", tmp_path / "bench")
    assert run.main(["--quick", "--only", "B1", "B2"]) == 1
    said = capsys.readouterr()
    assert "B1 with 1,000,000 events has no result: not the same rows" in said.err
    assert [one["target"] for one in json.loads((tmp_path / "bench" / "results.json").read_text())] == [2.0]


def test_the_settings_of_the_shell_do_not_reach_a_measured_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_DRIVER_MEMORY", "1g")
    monkeypatch.setenv("TAILRACE_JARS", "/jars")
    given = environment(tmp_path)
    assert "TAILRACE_DRIVER_MEMORY" not in given
    assert given["TAILRACE_JARS"] == "/jars"
    assert str(tmp_path) in given["JDK_JAVA_OPTIONS"]


def test_more_cores_are_told_by_the_fit_and_targets_by_what_was_measured() -> None:
    """Our side has 1 s that is serial of 9, theirs 2 of 18, and DuckDB none of 8."""

    def outcomes(serial: float, shared: float, cores: int) -> list[Outcome]:
        return [Outcome([serial + shared / cores], facts={"cpu": 9.0, "together_mb": 100.0})]

    parts = {"ours": (1.0, 8.0), "handwritten": (2.0, 16.0), "duck": (0.0, 8.0)}
    plan = Plan(Path(), 1, 1)

    def told_on(*numbers: int) -> dict[str, Result]:
        found = {(side, cores): outcomes(*own, cores) for cores in numbers for side, own in parts.items()}
        return {one.what: one for one in told(plan, "backfill", 1, found)}

    two = told_on(1, 2)
    assert two["backfill, 1 core"].ratio == pytest.approx(2.0)
    assert two["backfill, 16 cores by the fit"].ours == pytest.approx(1.5)
    assert two["backfill, 16 cores by the fit, beside DuckDB"].theirs == pytest.approx(0.5)
    assert {one.target for one in two.values()} == {None}
    assert "backfill, serial part: ours 11%, theirs 11%, duckdb 0%" in two
    many = told_on(*numbers_of_cores(16))
    assert many["backfill, 16 cores"].met
    assert many["backfill, 16 cores, beside DuckDB"].met is False
    assert "backfill, 64 cores by the fit" in many
    assert "backfill, serial part: ours 11%, theirs 11%, duckdb 0%; fits are off by 0% at most" in many


def test_a_measured_process_is_bound_to_its_cores(tmp_path: Path) -> None:
    small = views(tmp_path / "views", VIEWS_A_FILE)
    code, task = "import os; print(len(os.sched_getaffinity(0)))", Task("", tmp_path, tmp_path, small, small, cores=1)
    with (tmp_path / "output.txt").open("w") as output:
        assert measure.start([sys.executable, "-c", code], task, output).wait() == 0
    assert (tmp_path / "output.txt").read_text() == "1\n"


def test_the_memory_of_the_process_is_told_beside_what_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[tuple[str, str]]()

    class Told:
        folder = Path()

        def __init__(self, *given: object) -> None: ...

        def run(self, side: str, job: str, number: int = 0, *, room: str = "", **how: object) -> Outcome:
            ran.append((job, room))
            return Outcome([1.0], facts={"python_rss_mb": 1600.0 if job == "batch" else 2500.0, "jvm_rss_mb": 900.0})

        def close(self) -> None: ...

    monkeypatch.setattr(bounded, "Bench", Told)
    batch, backlog = bounded.bounded(Plan(Path(), 1, 1), 1, None)
    assert ran == [("land", ""), ("batch", "1GB"), ("backlog", "700MB")]
    assert (batch.met, backlog.met) == (True, False)


def test_a_task_sets_the_memory_of_our_side(tmp_path: Path) -> None:
    small = views(tmp_path / "views", VIEWS_A_FILE)
    assert Task("", tmp_path, tmp_path, small, small, room="700MB").settings.memory == "700MB"
