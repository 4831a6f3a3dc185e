"""DAGs as a scheduler parses them, the form's parameters, and the ranges they stand for. No Airflow runs here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from tailrace.airflow.form import BackfillRequest
from tailrace.airflow.ranges import Extent, choose_range, cut_range
from tailrace.airflow.web.report import result_page
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.runners.jobs import RunnerError

ROOT = Path(__file__).parents[2]
HOUR = 3_600_000_000
EXTENT = Extent(closed=10 * HOUR, latest=12 * HOUR)

PARSED = """
import sys
from pathlib import Path
sys.path.insert(0, "dags")
before = set(sys.modules)
for file in sorted(Path("dags").glob("*.py")):
    scope = {"__file__": str(file.resolve()), "__name__": file.stem}
    exec(compile(file.read_text(), str(file), "exec"), scope)
heavy = {"pyspark", "py4j", "pyarrow", "pyiceberg", "pandas", "numpy", "boto3", "duckdb", "tailrace.lake.catalog.lake"}
print("heavy:", *sorted(heavy & (set(sys.modules) - before)))
"""


def test_parsing_the_dags_imports_neither_spark_nor_tables(tmp_path: Path) -> None:
    env = {"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PARSED], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"from": "yesterday"}, "from: "),
        ({"from": "2013-03-08T00:00:00"}, "from: "),
        ({"from": 20130308}, "an instant as text"),
        ({"to": "2013-03-08T00:00:00Z"}, "fill in From, too"),
        ({"from": "2013-03-08T00:00:00Z", "to": "2013-03-08T00:00:00Z"}, "is empty"),
        ({"reason": "two\nlines"}, "reason: "),
        ({"reason": "x" * 201}, "reason: "),
        ({"dry_run": "true"}, "dry_run: "),
        ({"dry_run": 1}, "dry_run: "),
        ({"parallelism": 0}, "parallelism: "),
        ({"parallelism": 17}, "parallelism: "),
        ({"parallelism": 2.5}, "parallelism: "),
        ({"command": "rm -rf /"}, "command: "),
    ],
)
def test_parameters_that_do_not_hold_are_refused_in_one_line(params: dict[str, object], said: str) -> None:
    with pytest.raises(RunnerError) as refused:
        BackfillRequest.of(params)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not refused.value.again


def test_parameters_left_as_they_are_ask_for_one_run_that_is_no_dry_one() -> None:
    from tailrace.airflow.form import form

    asked = BackfillRequest.of({name: param.resolve() for name, param in form().items()})
    assert asked == BackfillRequest()
    assert BackfillRequest.of({"from": "", "to": " ", "reason": ""}) == asked, "fields that were emptied by hand"
    assert (asked.dry_run, asked.parallelism) == (False, 1)


def before(end: int) -> tuple[int, int]:
    return end - 2 * HOUR, end


def test_a_run_of_a_backfill_is_of_its_interval_and_of_nothing_else() -> None:
    assert choose_range(BackfillRequest(), (0, HOUR), EXTENT, before) == (0, HOUR)
    named = BackfillRequest.of({"from": "2013-03-08T00:00:00Z"})
    with pytest.raises(RunnerError, match="leave From and To empty"):
        choose_range(named, (0, HOUR), EXTENT, before)


def test_a_run_by_hand_is_of_the_range_it_names_or_of_the_last_that_is_closed() -> None:
    start = instant(datetime(2013, 3, 8, tzinfo=UTC))
    named = BackfillRequest.of({"from": "2013-03-08T01:00:00+01:00", "to": "2013-03-08T03:00:00Z"})
    assert choose_range(named, None, EXTENT, before) == (start, start + 3 * HOUR)
    unbounded = BackfillRequest.of({"from": "2013-03-08T00:00:00Z"})
    assert choose_range(unbounded, None, EXTENT, before) == (start, END_OF_TIME)
    assert choose_range(BackfillRequest(), None, EXTENT, before) == (8 * HOUR, 10 * HOUR)
    assert choose_range(BackfillRequest(), None, Extent(END_OF_TIME, 12 * HOUR), before) == (10 * HOUR, 12 * HOUR)
    with pytest.raises(RunnerError, match="no window is closed yet"):
        choose_range(BackfillRequest(), None, Extent(BEGINNING, BEGINNING), before)


@pytest.mark.parametrize("interval", [(0, 10 * HOUR), (0, 30 * HOUR), (9 * HOUR, END_OF_TIME), (11 * HOUR, 12 * HOUR)])
@pytest.mark.parametrize("parts", [1, 2, 3, 16])
def test_a_range_is_cut_without_gaps_and_what_is_open_stays_together(interval: tuple[int, int], parts: int) -> None:
    made = cut_range(interval, parts, EXTENT)
    assert 1 <= len(made) <= parts
    assert (made[0][0], made[-1][1]) == interval
    assert all(one[1] == two[0] for one, two in pairwise(made))
    assert all(first < last for first, last in made)
    assert all(last <= EXTENT.closed for _, last in made[:-1])
    if interval == (0, 10 * HOUR):
        assert len(made) == {1: 1, 2: 2, 3: 3, 16: 10}[parts], "as many as asked for, of whole hours"


def test_intervals_come_for_a_backfill_and_never_by_themselves() -> None:
    from airflow.timetables.base import TimeRestriction
    from pendulum import datetime as at

    from tailrace.airflow.timetable import ByHand

    table = ByHand("0 0 * * *", "UTC")
    first = at(2013, 3, 8)
    asked = TimeRestriction(earliest=first, latest=at(2013, 3, 9), catchup=True)
    found = table.next_dagrun_info(last_automated_data_interval=None, restriction=asked)
    assert found is not None
    assert found.data_interval is not None
    assert (found.data_interval.start, found.data_interval.end) == (first, at(2013, 3, 9))
    by_itself = TimeRestriction(earliest=first, latest=None, catchup=False)
    assert table.next_dagrun_info(last_automated_data_interval=None, restriction=by_itself) is None
    assert table.next_dagrun_info(last_automated_data_interval=found.data_interval, restriction=by_itself) is None


def dags(file: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__file__": str(ROOT / "dags" / file), "__name__": file}
    text = (ROOT / "dags" / file).read_text()
    exec(compile(text, file, "exec"), scope)
    assert len(text.splitlines()) < 20
    return {one.dag_id: one for one in scope.values() if type(one).__name__ == "DAG"}


def test_a_definition_has_four_dags_of_a_few_lines_and_what_goes_on_by_itself_waits_to_be_wanted() -> None:
    paused = {name: dag.is_paused_upon_creation for name, dag in dags("flights.py").items()}
    names = {"stream": None, "backfill": False, "repair": False, "maintain": None}
    assert paused == {f"hourly_departures.{name}": state for name, state in names.items()}


def test_marts_are_built_when_an_answer_changes_and_swept_up_every_hour() -> None:
    (dag,) = dags("marts.py").values()
    assert dag.dag_id == "dbt.build"
    table = dag.timetable
    assert [asset.uri for asset in table.asset_condition.objects] == ["tailrace://pipelines/hourly_departures"]
    assert table.timetable.expression == "0 * * * *"


def test_the_dags_of_the_page_on_airflow_are_dags() -> None:
    text = (ROOT / "docs" / "airflow.md").read_text()
    scope: dict[str, Any] = {"__file__": str(ROOT / "dags" / "page.py"), "__name__": "page"}
    made = []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "airflow.md", "exec"), scope)
        made.append({name: one.dag_id for name, one in scope.items() if type(one).__name__ == "DAG"})
    names = {name: f"hourly_departures.{name}" for name in ("stream", "backfill", "repair")}
    names["maintenance"] = "hourly_departures.maintain"
    assert made[0] == names
    assert made[-1] == names | {
        "bills": "bills",
        "export": "export",
        "marts": "dbt.build",
        "searched": "searched.stream",
    }
    assert type(scope["cluster"]()).__name__ == "Submit"
    assert str(scope["in_venv"]().python) == "/opt/tailrace"
    assert scope["serverless"]().application.under("jobs") == "s3://my-bucket/tailrace/jobs"


def test_a_map_is_backfilled_from_a_dag_as_a_pipeline_is() -> None:
    from tailrace.airflow import backfill_dag

    dag = backfill_dag(ROOT / "pipelines" / "delayed_flights.py")
    assert dag.dag_id == "delayed_flights.backfill"
    assert "the last whole interval that the watermark has passed" in (dag.doc_md or "")


def test_a_stream_without_a_source_is_refused_as_its_dag_is_parsed() -> None:
    from tailrace.airflow import stream_dag

    with pytest.raises(RunnerError, match="a folder, a topic, or the topics of a pattern"):
        stream_dag(ROOT / "pipelines" / "flights.py")


JOINED, FLIGHTS = ROOT / "pipelines" / "log_join.py", ROOT / "pipelines" / "flights.py"


def streamed(dag: Any) -> list[str]:
    """The arguments of the stream that a DAG keeps running, without the definitions."""
    job: Any = dag.get_task("stream").job
    words: list[str] = job.words[len(job.definitions) :]
    return words


def test_a_stream_of_several_definitions_has_a_source_for_each_log() -> None:
    from tailrace.airflow import stream_dag

    sources: Any = {"searches": {"folder": "/landing/searches", "format": "csv"}, "clicks": {"topic": "clicks"}}
    dag: Any = stream_dag([JOINED, FLIGHTS], sources=sources | {"flights": Path("/f")}, bootstrap="b:1", behind=None)
    assert dag.dag_id == "clicked_ads-hourly_departures.stream"
    flights = ["--from=flights=/f", "--format=flights=json"]
    searches = ["--from=searches=/landing/searches", "--format=searches=csv"]
    assert streamed(dag) == ["--kafka=clicks=clicks", *flights, *searches, "--bootstrap=b:1"]
    assert [one.name for one in dag.get_task("watermark").definitions] == ["clicked_ads", "hourly_departures"]
    assert stream_dag([JOINED], name="ads", sources=sources, bootstrap="b:1").dag_id == "ads.stream"


def test_a_stream_keeps_its_name_when_its_one_log_is_named() -> None:
    from tailrace.airflow import stream_dag

    short = stream_dag(FLIGHTS, folder="/landing", every=2)
    named = stream_dag([FLIGHTS], sources={"flights": Path("/landing")}, every=2)
    assert streamed(short) == streamed(named) == ["--from=/landing", "--format=json", "--every=2.0"]
    assert short.dag_id == named.dag_id


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"folder": "/landing"},
            "the definitions read 2 logs, clicks, searches, and folder /landing is given for none of them: write "
            'sources={"clicks": ..., "searches": ...} in its place',
        ),
        (
            {"sources": {"searches": "/s"}},
            'log clicks, which clicked_ads reads, has no source: write sources={"clicks": FOLDER} or {"clicks": '
            '{"topic": TOPIC}}, beside the others',
        ),
        (
            {"sources": {"searches": "/s", "views": "/v"}},
            "log clicks, which clicked_ads reads, has no source",
        ),
        (
            {"sources": {"searches": "/s", "clicks": "/c", "views": {"topic": "v"}}},
            "no definition reads a log views, which topic v is for: expected one of clicks, searches; leave it out",
        ),
        ({"sources": {"searches": "/s", "clicks": "/s"}}, "folder /s is given for two logs"),
        (
            {"sources": {"searches": "/s", "clicks": "clicks"}},
            "sources['clicks'] = 'clicks': expected a folder or a topic, and this may be either: write "
            "{\"topic\": 'clicks'} or Path('clicks')",
        ),
        ({"sources": {"clicks": {"topic": "a", "folder": "/b"}}}, "sources['clicks']: the job: Value error, a log is"),
        ({"sources": {"clicks": {"topic": "a", "format": "csv"}}}, "a format is of the files in a folder"),
        ({"sources": {"clicks": {"folder": "/a", "start": "latest"}}}, "a start is a position in a topic"),
        ({"sources": {"clicks": {"topics": "a"}}}, "topics: Extra inputs are not permitted"),
        ({"sources": {}}, "expected the source of each log"),
        ({"sources": {"searches": "/s", "clicks": "/c"}, "folder": "/f"}, "write folder in them"),
    ],
)
def test_a_source_that_nobody_names_or_nobody_reads_is_refused_as_the_dag_is_parsed(options: Any, said: str) -> None:
    from tailrace.airflow import stream_dag

    with pytest.raises(RunnerError) as refused:
        stream_dag(JOINED, **options)
    assert said in str(refused.value)
    assert not refused.value.again


def test_an_operator_of_a_dag_of_ones_own_refuses_such_a_job_too() -> None:
    from tailrace.airflow.operators import StreamOperator
    from tailrace.runners import StreamJob

    with pytest.raises(
        RunnerError, match="the definitions read 2 logs, clicks, searches, and topic t is given for none"
    ):
        StreamOperator(task_id="stream", subject="ads", job=StreamJob.of(definitions=(str(JOINED),), topic="t"))
    job = StreamJob.of(definitions=(str(FLIGHTS),), topic="t")
    assert StreamOperator(task_id="stream", subject="flights", job=job).job == job


def test_what_dbt_did_is_counted_by_how_it_ended(tmp_path: Path) -> None:
    from tailrace.airflow.dbt_task import read_results

    file = tmp_path / "run_results.json"
    assert read_results(file) == (Counter(), [])
    ended = [("model.a", "success"), ("model.b", "success"), ("test.c", "fail"), ("model.d", "skipped")]
    file.write_text(json.dumps({"results": [{"unique_id": name, "status": status} for name, status in ended]}))
    assert read_results(file) == (Counter(success=2, fail=1, skipped=1), ["test.c fail"])


def test_what_a_form_said_is_text_on_the_page_and_no_markup() -> None:
    said = {"pipeline": "p", "said": "1 changed", "reason": "<script>alert(1)</script>", "range": ["a", "<b>"]}
    shown = result_page(said, "success")
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "Failed: &lt;i&gt;" in result_page({"failed": "<i>"}, "failed")
    assert "is running" in result_page(None, "running")
