"""`stream`, `backfill` and `audit` as their users see them; what Spark would do is played."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import tailrace.backfill.backfill as spark_backfill
import tailrace.stream.landing_stream as spark_stream
import tailrace.verify.audit as spark_audit
from tailrace.backfill.result import Backfilled, BackfillError
from tailrace.cli.commands.run import stream
from tailrace.cli.main import app
from tailrace.cli.runtime.command_list import COMMANDS
from tailrace.cli.terminal.backlog import FolderBacklog, TopicBacklog
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.stream_progress import StreamProgress
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.fold.fold import EpochResult
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.row_landing import LandedCounts
from tailrace.lake.catalog.run import Run
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.step.progress import Partition, Progress
from tailrace.stream.epoch_report import EpochReport
from tailrace.verify.tampering.audit_result import Audit, Check
from tailrace.verify.tampering.remedies import REMEDIES, remedy
from tests.support.lakes import small_lake

LANDING = "tests"
WATERMARK = instant(small_lake.at(12))


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    @contextmanager
    def no_spark(settings: Any, app: str, groups: Sequence[str] = (), started: Any = lambda: None) -> Iterator[None]:
        started()
        yield None

    monkeypatch.setattr(stream, "session", no_spark)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    path = tmp_path / "rides.py"
    path.write_text(small_lake.DEFINITION)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def report(epoch: int, *, records: int = 100, recovered: bool = False, late: int = 0, rejected: int = 0) -> EpochReport:
    clock = Clock(epoch, WATERMARK + epoch * 60_000_000, WATERMARK)
    folded = EpochResult(clock=clock, timings={"on_time": 7}, retractions=2, late=late)
    landed = LandedCounts(0 if recovered else records, rejected)
    return EpochReport(epoch, landed, {"hourly_rides": folded}, 0.5, {"read": 0.1234, "step": 0.25}, recovered)


class PlayedStream:
    """A stream of three epochs that is told to stop, fails or ends."""

    epochs: tuple[EpochReport, ...] = (report(0), report(1, rejected=2), report(2, late=1))
    ends: BaseException | None = None
    told: signal.Signals | None = None
    mended: str | None = None
    said: list[str]

    def __init__(self, spark: Any, lake: Any, pipelines: Any, sources: Any, *, follow_every: int, watch: Any) -> None:
        (source,) = sources.values()
        type(self).said = [f"{source} for {[one.name for one in pipelines]}, follow every {follow_every}"]
        self.watch, self.query, self.left = watch, None, list(self.epochs)
        self.checkpoint = SimpleNamespace(folder="/nowhere")

    def start(self, *, once: bool, every: float, stop: Callable[[], object]) -> None:
        self.said.append(f"start once={once} every={every}")
        while self.left and self.left[0].recovered and not stop():
            self.watch(self.left.pop(0))

    def wait(self, seconds: float) -> bool:
        if self.told is not None and len(self.left) == 1:
            os.kill(os.getpid(), self.told)
            return False
        if self.left:
            self.watch(self.left.pop(0))
            return False
        if self.ends is not None:
            raise self.ends
        return True

    def stop(self) -> None:
        self.said.append("stop")

    def close(self) -> None:
        self.said.append("close")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[PlayedStream]:
    class Played(PlayedStream):
        pass

    monkeypatch.setattr(spark_stream, "Stream", Played)
    return Played


def test_a_stream_sums_up_what_it_did(definition: str, played: type[PlayedStream]) -> None:
    result = run("stream", definition, "--from", LANDING, "--once", "--format", "csv")
    assert result.exit_code == 0, result.output
    assert played.said == [
        f"csv files in {LANDING} for ['hourly_rides'], follow every None", "start once=True every=0.0", "close"
    ]  # fmt: skip
    summary = " ".join(result.stdout.split())
    assert summary.startswith("3 epochs, 300 records in ")
    assert summary.endswith("; 21 panes and 6 retractions; 1 late; 2 rejected; watermark 2026-01-01T12:02Z"), summary
    news = result.stderr.splitlines()
    assert news[0] == "starting Spark"
    assert news[1].startswith("epoch 0  100 records  7 panes  watermark 2026-01-01T12:00Z  0.5 s  ")
    assert news[-1] == "bringing the answers up with the ledger"


def test_a_stream_in_json_is_an_object_an_epoch(definition: str, played: type[PlayedStream]) -> None:
    result = run(
        "stream", definition, "--kafka", "rides", "--bootstrap", "localhost:9092", "--json", "--follow-every", "3"
    )
    assert played.said[0] == "Kafka topic rides for ['hourly_rides'], follow every 3"
    said = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["event"] for one in said] == ["epoch", "epoch", "epoch", "summary"]
    assert said[1] == {
        "event": "epoch",
        "epoch": 1,
        "records": 100,
        "rejected": 2,
        "duplicates": 0,
        "rounded": 0,
        "blank_lines": 0,
        "recovered": False,
        "seconds": 0.5,
        "phases": {"read": 0.123, "step": 0.25},
        "pipelines": {
            "hourly_rides": {
                "panes": 7,
                "retractions": 2,
                "late": 0,
                "engine": "spark",
                "watermark": "2026-01-01T12:01:00Z",
                "processing_time": "2026-01-01T12:00:00Z",
            }
        },
    }
    assert {name: said[3][name] for name in ("stopped", "epochs", "records", "last_epoch", "late", "watermarks")} == {
        "stopped": False,
        "epochs": 3,
        "records": 300,
        "last_epoch": 2,
        "late": 1,
        "watermarks": {"hourly_rides": "2026-01-01T12:02:00Z"},
    }


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_stops_at_an_epoch_boundary(
    definition: str, played: type[PlayedStream], number: signal.Signals, name: str
) -> None:
    before = signal.getsignal(number)
    played.told = number
    result = run("stream", definition, "--from", LANDING)
    assert result.exit_code == 130
    assert played.said[-2:] == ["stop", "close"]
    assert f"{name}: stopping at the next epoch boundary" in result.stderr
    assert f"{name}: stopped at the boundary after epoch 1; the next start goes on from there" in result.stderr
    assert signal.getsignal(number) == before


def test_a_signal_is_heeded_while_epochs_are_taken_again(
    definition: str, played: type[PlayedStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    played.epochs = tuple(report(epoch, recovered=True) for epoch in range(5))
    told = StreamProgress.show_epoch

    def tell(self: StreamProgress, one: EpochReport) -> None:
        told(self, one)
        if one.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(StreamProgress, "show_epoch", tell)
    result = run("stream", definition, "--from", LANDING)
    assert result.exit_code == 130
    assert "stopped at the boundary after epoch 1" in result.stderr
    assert "2 epochs again from the log" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("error", "status"), [(StreamError("the source is gone"), 3), (FencedError("another stream took the lease"), 4)]
)
def test_a_stream_that_fails_says_why(
    definition: str, played: type[PlayedStream], error: Exception, status: int
) -> None:
    played.ends = error
    result = run("stream", definition, "--from", LANDING)
    assert result.exit_code == status
    assert result.stderr.splitlines()[-1] == f"error: {error}"
    assert "close" not in played.said


def test_a_stream_says_what_was_wrong_with_its_checkpoint(definition: str, played: type[PlayedStream]) -> None:
    played.epochs, played.mended = (), "is older than the log"
    shown = run("stream", definition, "--from", LANDING, "--once").stderr
    assert "the checkpoint is older than the log: it was written anew as log rides has it" in shown


def test_a_stream_says_which_silent_partition_holds_its_watermark_back(
    definition: str, played: type[PlayedStream]
) -> None:
    minute = 60_000_000
    active = {"a-0": (9, 10), "a-1": (5, 7), "a-2": (5, 8)}
    partitions = {name: Partition(reached, reached, at * minute) for name, (reached, at) in active.items()}
    progress = Progress(5, partitions, {}, 10 * minute)
    played.epochs = (replace(report(0), progress=progress),)
    arguments = ("stream", definition, "--from", LANDING, "--once")
    assert "held back by a-1 and 1 more with nothing new for 3 min" in run(*arguments).stderr
    played.epochs = (replace(report(0), progress=replace(progress, now=8 * minute)),)
    assert "held back by a-1 with nothing new for 1 min" in run(*arguments).stderr
    said = json.loads(run(*arguments, "--json").stdout.splitlines()[0])
    assert said["held_by"] == ["a-1", "a-2"]
    alone = Progress(5, {"": partitions["a-1"]}, {}, 10 * minute)
    played.epochs = (replace(report(0), progress=alone),)
    assert "held back" not in run(*arguments).stderr


def test_a_stream_counts_what_came_again(definition: str, played: type[PlayedStream]) -> None:
    played.epochs = tuple(replace(report(n), landed=LandedCounts(5, 0, duplicates=n)) for n in range(2))
    arguments = ("stream", definition, "--from", LANDING, "--once")
    assert "; 1 duplicate; " in run(*arguments).stdout
    lines = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert [line["duplicates"] for line in lines] == [0, 1, 1]


def test_a_stream_with_nothing_to_do_says_so(definition: str, played: type[PlayedStream]) -> None:
    played.epochs = ()
    assert run("stream", definition, "--from", LANDING, "--once").stdout == "nothing new: no epoch was needed\n"


def test_plain_lines_tell_the_time_left_and_do_not_fill_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    news = io.StringIO()
    taken = iter([(0, 40), (10, 40), (11, 40), (12, 40), (40, 40)])
    watched = StreamProgress(Output(news=Console(file=news, width=100)), lambda: next(taken))
    watched.begin()
    for epoch, at in enumerate((20.0, 21.0, 24.0, 80.0)):
        now[0] = at
        watched.show_epoch(report(epoch))
    said = [line.split("  ")[-1] for line in news.getvalue().splitlines()]
    # The second came a second after the first.
    assert said == ["10 of 40 files, 1 min left", "12 of 40 files, 56 s left", "40 of 40 files"]


def test_a_terminal_gets_one_live_line() -> None:
    news = Console(file=io.StringIO(), force_terminal=True, width=160)
    watched = StreamProgress(Output(news=news), lambda: (3, 4))
    watched.show_activity("starting Spark")
    assert "starting Spark" in text_of(watched)
    watched.begin()
    watched.show_epoch(report(5, late=2))
    watched.close()
    shown = text_of(watched)
    assert "epoch 5  100 records  7 panes  2 late  watermark 2026-01-01T12:05Z" in shown
    assert "3 of 4 files" in shown


def text_of(watched: StreamProgress) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(watched._rendered())
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_folder_s_backlog_is_what_its_checkpoint_has_not_taken(tmp_path: Path) -> None:
    folder, sources = tmp_path / "landing", tmp_path / "checkpoint" / "sources" / "0"
    (folder / "more").mkdir(parents=True)
    for name in ("a.json", "b.json", "more/c.json", "more/d.json", ".e.json.writing", "_f.json"):
        (folder / name).touch()
    backlog = FolderBacklog([f"file://{folder}"], str(tmp_path / "checkpoint"))
    assert backlog() == (0, 4)
    sources.mkdir(parents=True)
    (sources / "0").write_text('v1\n{"path":"a"}')
    (sources / ".0.crc").touch()
    assert backlog() == (1, 4)
    (sources / "1").write_text('v1\n{"path":"b"}\n{"path":"c"}')
    assert backlog() == (3, 4)
    (sources / "2.compact").write_text('v1\n{"path":"a"}\n{"path":"b"}\n{"path":"c"}\n{"path":"d"}')
    assert backlog() == (4, 4)
    assert FolderBacklog(["s3://bucket/landing"], str(tmp_path))() is None


def test_a_topic_s_backlog_is_what_the_brokers_still_hold() -> None:
    assert TopicBacklog()() is None
    source: dict[str, Any] = {"endOffset": {"rides": {"0": 10, "1": 5}}, "latestOffset": {"rides": {"0": 17, "1": 9}}}

    def backlog(*sources: dict[str, Any]) -> tuple[int, int] | None:
        query: Any = SimpleNamespace(lastProgress=SimpleNamespace(json=json.dumps({"sources": sources})))
        return TopicBacklog(query)()

    assert backlog(source) == (15, 26)
    assert backlog(source, source) == (30, 52)
    assert backlog(source | {"latestOffset": None}) is None
    assert backlog(source, {"endOffset": {"logOffset": 5}, "latestOffset": None}) is None


RUN = Run("abc123", "backfill", "committed", 3, WATERMARK - 7_200_000_000, WATERMARK, "f", log_epoch=9)


def backfilled(monkeypatch: pytest.MonkeyPatch, found: Backfilled | Exception) -> dict[str, Any]:
    asked: dict[str, Any] = {}

    def play(lake: Any, pipeline: Any, first: int, last: int, **options: Any) -> Any:
        asked.update(options, first=first, last=last)
        if isinstance(found, Exception):
            raise found
        return [(pipeline, [found])]

    monkeypatch.setattr(spark_backfill, "backfill_stages", play)
    return asked


BY = EngineChoice(Engine.DUCKDB, "it fits")
RANGE = ("--from", "2026-01-01T10:00", "--to", "2026-01-01T12:00Z")


def test_a_backfill_says_what_it_changed(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = backfilled(monkeypatch, Backfilled(RUN, 5, 1204, 1, 2.34, BY))
    result = run("backfill", definition, *RANGE, "--reason", "a bug")
    assert (asked["first"], asked["last"], asked["reason"], asked["dry_run"]) == (RUN.first, RUN.last, "a bug", False)
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "pipeline   hourly_rides",
        "windows    from 2026-01-01T10:00Z to 2026-01-01T12:00Z",
        "log        up to epoch 9",
        "run        abc123, generation 3, committed",
        "changed    5 windows fired anew",
        "untouched  1,204 windows came out equal",
        "retracted  1 window taken back for good",
        "engine     duckdb: it fits",
        "took       2.34 s",
    ]
    assert result.stderr.splitlines()[-1] == "computing hourly_rides from 2026-01-01T10:00Z to 2026-01-01T12:00Z"


def test_a_dry_run_says_what_would_change(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dry = Run("", "backfill", "dry_run", 0, RUN.first, RUN.last, "f", 9)
    asked = backfilled(monkeypatch, Backfilled(dry, 5, 2, 1, 2.0, BY))
    assert "changed    5 windows would be fired anew" in run("backfill", definition, *RANGE, "--dry-run").stdout
    assert asked["dry_run"] is True
    assert json.loads(run("backfill", definition, *RANGE, "--dry-run", "--json").stdout) == {
        "pipeline": "hourly_rides",
        "range": ["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"],
        "dry_run": True,
        "run": None,
        "status": "dry_run",
        "generation": None,
        "log_epoch": 9,
        "changed": 5,
        "untouched": 2,
        "retracted": 1,
        "seconds": 2.0,
        "engine": "duckdb",
        "engine_because": "it fits",
        "gave_way_to": None,
    }


def test_a_backfill_that_gives_way_has_status_4(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Run("def456", "backfill", "committed", 4, RUN.first, RUN.last, "f", 9)
    backfilled(monkeypatch, Backfilled(RUN, 5, 2, 1, 2.0, BY, gave_way=newer))
    result = run("backfill", definition, *RANGE)
    assert result.exit_code == 4
    assert "gave way: run def456 of generation 4 covers windows from" in result.stderr
    assert "changed" not in result.stdout
    assert json.loads(run("backfill", definition, *RANGE, "--json").stdout)["gave_way_to"] == {
        "run": "def456", "generation": 4
    }  # fmt: skip


def test_a_backfill_that_cannot_be_done_has_status_3(definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backfilled(monkeypatch, BackfillError("windows are still open to the stream"))
    result = run("backfill", definition, *RANGE)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (3, "error: windows are still open to the stream")


def test_an_audit_of_several_definitions_takes_what_they_share_once(
    definition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, clash = tmp_path / "other.py", tmp_path / "clash.py"
    small_lake = "tests.support.lakes.small_lake"
    imports = ("dataclasses import replace", "tailrace import Fixed, hours", f"{small_lake} import HOURLY")
    made = "".join(f"from {one}\n" for one in imports)
    other.write_text(f'{made}P = replace(HOURLY, name="other_rides")\n')
    clash.write_text(f"{made}P = replace(HOURLY, where=Fixed(hours(3)))\n")
    asked = list[str]()

    def counted(_: Any, pipeline: Any, **__: Any) -> Audit:
        asked.append(pipeline.name)
        return Audit({"records": 1}, (Check("nothing is lost", pipeline.name == "hourly_rides", "1 = 1"),), BY)

    monkeypatch.setattr(spark_audit, "audit", counted)
    found = run("audit", definition, f"{other}:P", definition, "--json")
    assert asked == ["hourly_rides", "other_rides"]
    data = json.loads(found.stdout)
    assert (found.exit_code, data["ok"]) == (1, False)
    assert [(one["pipeline"], one["ok"]) for one in data["definitions"]] == [
        ("hourly_rides", True), ("other_rides", False), ("hourly_rides", True)
    ]  # fmt: skip
    refused = run("audit", definition, f"{clash}:P")
    assert refused.exit_code == 2
    assert "two of the definitions are called hourly_rides and mean different things" in refused.stderr


@pytest.mark.parametrize("ok", [True, False])
def test_an_audit_says_what_does_not_add_up(definition: str, monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    checks = (Check("nothing is lost", True, "3 records = 2 + 1"), Check("answers are right", ok, "8 windows compared"))
    monkeypatch.setattr(spark_audit, "audit", lambda *_, **__: Audit({"records": 1234, "late": 1}, checks, BY))
    result = run("audit", definition)
    assert result.exit_code == (0 if ok else 1)
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    told = [line.strip() for line in lines if line.startswith(" " * 15)]
    # A long path is broken within.
    assert "".join("".join(told).split()) == (
        "" if ok else "".join(f"→{remedy('answers are right', definition)}".split())
    )
    assert [line for line in lines if line.strip() not in told or not line] == [
        "hourly_rides",
        "records  1,234",
        "late     1",
        "engine   duckdb: it fits",
        "",
        "   check              found",
        "✓  nothing is lost    3 records = 2 + 1",
        f"{'✓' if ok else '✗'}  answers are right  8 windows compared",
        "",
        "it adds up" if ok else "1 of 2 do not hold",
    ]
    found = run("audit", definition, "--json")
    assert found.exit_code == result.exit_code
    assert json.loads(found.stdout) == {
        "pipeline": "hourly_rides",
        "ok": ok,
        "counts": {"records": 1234, "late": 1},
        "checks": [
            {"name": one.name, "ok": one.ok, "detail": one.detail}
            | ({} if one.ok else {"remedy": remedy(one.name, definition)})
            for one in checks
        ],
        "engine": "duckdb",
        "engine_because": "it fits",
    }


def test_each_remedy_is_of_a_check_that_there_is_and_names_commands_that_there_are() -> None:
    files = [file for file in Path(spark_audit.__file__).parent.rglob("*.py") if file.name != "remedies.py"]
    code = "".join(file.read_text() for file in files)
    code += "".join(code.replace("{kind}", kind) for kind in ("records", "rejected"))
    assert [name for name in REMEDIES if f'"{name}"' not in code] == []
    for name in (*REMEDIES, "any other"):
        for command in re.findall(r"tailrace (\w+)", remedy(name, "p.py")):
            assert command in COMMANDS
        assert "{" not in remedy(name, "p.py")
    assert "p q.py" in remedy("panes give the answers", "p q.py")
