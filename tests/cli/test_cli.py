"""The command as a whole: its help, its exit statuses, and that an error is one clear message."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tailrace
from tailrace import Log
from tailrace.cli import main
from tailrace.cli.commands.look import status
from tailrace.cli.runtime.command_list import COMMANDS, load_command
from tailrace.cli.terminal.usage import MEANING, ExitStatus, UsageError, status_of
from tailrace.ingest.row_landing import NOTHING
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.lake_errors import FencedError, LakeError, OtherDefinitionError
from tailrace.model.base.errors import ClockError, DefinitionError, TailraceError
from tailrace.runners.jobs import LogSource, StreamJob
from tailrace.settings import Settings, SettingsError
from tailrace.toolchain.tool_errors import ToolchainError

JSON = ("stream", "backfill", "audit", "replay", "maintain", "explain", "status", "panes")
SHAPE = ("tables show", "tables write", "tables plan", "tables apply")


def run(*args: str) -> Result:
    return CliRunner().invoke(main.app, args)


def test_the_help_names_every_command_and_exit_status() -> None:
    shown = run("--help")
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    assert all((f" {name} " in text) == (one.panel is not None) for name, one in COMMANDS.items())
    for number, meaning in MEANING.items():
        assert f"{number.value} {meaning}" in text
    assert [number.value for number in MEANING] == [0, 1, 2, 3, 4, 130]


@pytest.mark.parametrize("command", JSON + SHAPE)
def test_every_command_explains_itself_and_reports_as_json(command: str) -> None:
    shown = run(*command.split(), "-h")
    assert shown.exit_code == 0
    assert "DEFINITION" in shown.stdout
    assert "--json" in shown.stdout


def test_every_option_says_what_it_is_for() -> None:
    shown = run("stream", "--help").stdout
    for option in (
        "--from",
        "--format",
        "--kafka",
        "--bootstrap",
        "--once",
        "--every",
        "--per-epoch",
        "--follow-every",
    ):
        line = next(line for line in shown.splitlines() if line.strip("│* ").startswith(option))
        assert len(line.strip("│ ").split("  ")) > 2, line


def test_the_version_is_the_package_s() -> None:
    assert run("--version").stdout == f"tailrace {tailrace.__version__}\n"


@pytest.mark.parametrize(
    "args", [("nothing",), ("stream",), ("panes", "pipelines/flights.py", "--no-such"), ("status", "x.py")]
)
def test_wrong_usage_has_status_2(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (UsageError("x"), ExitStatus.USAGE),
        (DefinitionError("x", []), ExitStatus.USAGE),
        (SettingsError([]), ExitStatus.USAGE),
        (OtherDefinitionError("x"), ExitStatus.USAGE),
        (ToolchainError("x"), ExitStatus.USAGE),
        (LakeError("x"), ExitStatus.FAILED),
        (ClockError("x"), ExitStatus.FAILED),
        (FencedError("x"), ExitStatus.GAVE_WAY),
    ],
)
def test_the_exit_status_says_what_kind_of_error_it_was(
    error: TailraceError, number: ExitStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status_of(error) is number
    result = failing(monkeypatch, error)
    assert (result.exit_code, result.stdout) == (number, "")
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, *args: str) -> Result:
    def fail(definition: str) -> None:
        raise error

    monkeypatch.setattr(status, "load_any", fail)
    return run("status", "x.py", *args)


def test_all_settings_at_fault_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SHUFFLE_PARTITIONS", "0")
    monkeypatch.setenv("TAILRACE_CATALOG", "No Name")
    result = run("status")
    assert result.exit_code == 2
    assert "1. catalog = 'No Name'" in result.stderr
    assert "set TAILRACE_SHUFFLE_PARTITIONS" in result.stderr


def test_an_unexpected_error_is_one_line_and_a_trace_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, KeyError("boom\nsecond line"))
    assert result.exit_code == 3
    line = result.stderr.strip()
    assert len(line.splitlines()) == 1
    assert line.startswith("error: unexpected: KeyError: 'boom")
    path = Path(line.split("the trace is in ")[1].split(",")[0])
    assert "Traceback" in path.read_text()
    path.unlink()


@pytest.mark.parametrize("error", [KeyError("boom"), LakeError("boom"), RuntimeError("boom")])
def test_debug_shows_the_trace_wherever_it_stands(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    result = failing(monkeypatch, error, "--debug")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr + capfd.readouterr().err


def test_an_interrupted_command_has_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    result = failing(monkeypatch, KeyboardInterrupt())
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "expected one of --from DIR, --kafka TOPIC and --from-log, found none"),
        (("--from-log", "--per-epoch", "3"), "--per-epoch and --every cut a source into epochs"),
        (
            ("--from", "in", "--kafka", "rides"),
            "log flights has two sources, --from in and --kafka rides: leave one out",
        ),
        (
            ("--kafka", "rides"),
            "--kafka needs the brokers: pass --bootstrap HOST:PORT, or set TAILRACE_KAFKA_BOOTSTRAP",
        ),
        (("--kafka-pattern", "r(", "--bootstrap", "b:1"), "--kafka-pattern r(: it is no regular expression: "),
        (
            ("--kafka", "a", "--kafka-pattern", "b", "--bootstrap", "b:1"),
            "log flights has two sources, --kafka a and --kafka-pattern b: leave one out",
        ),
        (
            ("--kafka", "a", "--bootstrap", "b:1", "--start", "2026-11-29"),
            "--start 2026-11-29: expected earliest, latest, an instant with its offset from UTC, such as ",
        ),
        (("--kafka", "a", "--bootstrap", "b:1", "--start", '{"a": {"0": -1}}'), '--start {"a": {"0": -1}}: expected'),
        (("--from", "tests", "--start", "latest"), "--start latest: a start is a position in a topic"),
        (("--from-log", "--start", "latest"), "--start latest: a start is a position in a topic"),
        (
            ("--kafka", "a", "--bootstrap", "b:1", "--start", "latest", "--start", "flights=earliest"),
            "log flights has two starts, latest and earliest: leave one out",
        ),
        (("--from", "nowhere"), "the folder nowhere is not there: make it, or pass another with --from"),
        (
            ("--from", "rides=tests"),
            "log flights, which hourly_departures reads, has no source: pass --from flights=DIR",
        ),
        (
            ("--kafka", "rides=r", "--bootstrap", "b:1"),
            "log flights, which hourly_departures reads, has no source: pass",
        ),
        (("--from", "tests", "--format", "orc"), "--format orc: expected one of json, csv, parquet, avro, found 'orc'"),
        (("--from", "tests", "--once", "--every", "5"), "--every has no meaning with --once"),
    ],
)
def test_stream_refuses_sources_that_make_no_sense(args: tuple[str, ...], message: str) -> None:
    result = run("stream", "pipelines/flights.py", *args)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")


TWO_LOGS = """
from tailrace import Count, Fixed, Log, Pipeline, Union, minutes

views, clicks = (Log(name=name, columns={"at": "timestamp"}, event_time="at") for name in ("views", "clicks"))
both = Union(name="ads", of=(views, clicks))
counted = Pipeline(name="counted", log=both, key="log", what={"n": Count()}, where=Fixed(minutes(1)))
"""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--from", "in"), "the definitions read 2 logs, clicks, views: say which, as --from clicks=in"),
        (
            ("--from", "views=tests"),
            "log clicks, which counted reads, has no source: pass --from clicks=DIR or --kafka",
        ),
        (
            ("--from", "views=tests", "--from", "other=docs"),
            "log clicks, which counted reads, has no source: pass --from clicks=DIR or --kafka clicks=TOPIC; no "
            "definition reads a log other, which --from docs is for: expected one of clicks, views; leave it out",
        ),
        (
            ("--from", "views=tests", "--kafka", "clicks=c", "--bootstrap", "b:1", "--format", "clicks=csv"),
            "--format clicks=csv: a format is of the files in a folder, which log clicks has not: expected a log with "
            "--from, found views",
        ),
        (
            ("--from", "views=a", "--kafka", "views=b"),
            "log views has two sources, --from a and --kafka b: leave one out",
        ),
        (("--from", "views=tests", "--from", "clicks=tests"), "--from tests is given for two logs: a record is of"),
        (("--from", "views=tests", "--from", "clicks=nowhere"), "the folder nowhere is not there"),
        (
            ("--from", "views=tests", "--from-log"),
            "expected one of --from DIR, --kafka TOPIC and --from-log, found --from",
        ),
    ],
)
def test_stream_refuses_logs_without_a_source_or_with_two(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    (tmp_path / "ads.py").write_text(TWO_LOGS)
    result = run("stream", str(tmp_path / "ads.py"), *args)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")


def test_stream_takes_the_sources_of_a_job_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a DAG names for each log is what its stream reads."""
    (tmp_path / "ads.py").write_text(TWO_LOGS)
    given: list[Any] = []

    class Noted:
        def __init__(self, pipelines: Any, sources: Any, *more: Any, **options: Any) -> None:
            given.append((sources, options["every"]))

        def run(self, port: int | None) -> int:
            return 0

    monkeypatch.setattr("tailrace.cli.commands.run.stream._Run", Noted)
    views, clicks = LogSource(folder=str(tmp_path), format="csv"), LogSource(topic="c", start="latest")
    place = (str(tmp_path / "ads.py"),)
    job = StreamJob(definitions=place, sources={"views": views, "clicks": clicks}, bootstrap="b:1", per_epoch=5)
    other = StreamJob(definitions=place, sources={"views": views, "clicks": LogSource(folder="/tmp")}, every=2)
    for one in (job, other):
        assert run("stream", *one.words).exit_code == 0
    (first, _), (second, every) = given
    assert (first["views"], second["views"].format, second["clicks"].format, every) == (
        Files(str(tmp_path), "csv", 5), "csv", "json", 2,
    )  # fmt: skip
    assert (first["clicks"].topic, first["clicks"].start.latest, first["clicks"].per_epoch) == ("c", True, 5)


def test_stream_asks_for_the_registry_of_all_messages_that_name_schemas_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "ads.py").write_text(TWO_LOGS.replace('event_time="at")', 'event_time="at", messages="avro")'))
    given = ["--kafka", "views=v", "--kafka", "clicks=c", "--bootstrap", "127.0.0.1:1"]
    result = run("stream", str(tmp_path / "ads.py"), *given)
    assert result.exit_code == 2
    message = "the messages of views, clicks name schemas in a registry: set TAILRACE_SCHEMA_REGISTRY_URI"
    assert result.stderr == f"error: {message}\n"


def test_backfill_refuses_a_range_that_makes_no_sense() -> None:
    result = run("backfill", "pipelines/flights.py", "--from", "2013-03-10", "--to", "2013-03-08")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the range from 2013-03-10T00:00Z to 2013-03-08T00:00Z is empty: pass a --to that is after --from\n"
    )


def test_what_the_list_of_commands_says_of_each_is_what_its_own_help_begins_with() -> None:
    for name, command in COMMANDS.items():
        assert (load_command(name).help or "").split("\n\n")[0] == command.summary


def test_the_help_loads_nothing_of_what_commands_need() -> None:
    heavy = {"pyspark", "pyiceberg", "pyarrow", "pandas", "pydantic", "tailrace.settings"}
    code = f"import sys, tailrace.cli.main; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_T3_the_input_of_all_logs_that_are_named_is_said_to_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    lake = Lake(Settings(warehouse=tmp_path / "lake"))
    file = tmp_path / "ads.py"
    file.write_text(TWO_LOGS)
    for log in ("views", "clicks"):
        lake.ensure(log_contract(Log(name=log, columns={"at": "timestamp"}, event_time="at")), NOTHING)
    words = ("watermark", str(file), "--until", "2026-01-01")
    refused = run(*words)
    assert refused.exit_code == 2
    assert "counted reads 2 logs, views, clicks: say which is complete, with a --log for each" in refused.stderr
    assert "for all of them: --log views --log clicks" in refused.stderr
    assert run(*words, "--log", "views", "--log", "clicks", "--partition", "views-0").exit_code == 2
    said = run(*words, "--log", "views", "--log", "clicks")
    assert said.exit_code == 0, said.output
    for log in ("views", "clicks"):
        assert f"said that log {log} is complete until 2026-01-01" in said.stdout
    data = json.loads(run(*words, "--log", "views", "--log", "clicks", "--json").stdout)
    assert [one["log"] for one in data["logs"]] == ["views", "clicks"]


def test_every_description_of_an_option_is_of_a_parameter_that_there_is() -> None:
    described = tomllib.loads(files("tailrace.cli.runtime").joinpath("options.toml").read_text())
    shared, used = described.pop("shared"), set[str]()
    for name in COMMANDS:
        command: Any = load_command(name)
        commands = dict(getattr(command, "commands", {}))
        own = described.pop(name, {})
        for part, found in commands.items() or [(None, command)]:
            parameters = {one.name for one in found.params}
            assert parameters >= {*(own if part is None else own.pop(part, {}))}, (name, part)
            used |= parameters
        assert not commands or own == {}, name
    assert described == {}
    assert {*shared} <= used
