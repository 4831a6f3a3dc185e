"""The command as its users run it: real processes on a real lake, told to stop and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEFINITION = "pipelines/flights.py"
ORIGINS = ("EWR", "JFK", "LGA")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flights of one made-up day as they would land: a file each hour; one flight ten hours late."""
    folder = tmp_path_factory.mktemp("landing")
    for hour in range(12):
        rows = [_flight(hour, place, origin) for place, origin in enumerate(ORIGINS)]
        if hour == 11:
            rows.append(_flight(1, 7, "EWR", known=hour))
        path = folder / f"flights-{hour:02d}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_400_000_000 + hour, 1_400_000_000 + hour))
    (folder / "flights-12.json").write_text('{"flight_id": 7}\n')
    return folder


def _flight(hour: int, place: int, origin: str, known: int | None = None) -> dict[str, Any]:
    return {
        "flight_id": f"UA{place}-{hour}",
        "origin": origin,
        "dest": "IAH",
        "carrier": "UA",
        "flight": place,
        "scheduled": f"2013-03-08T{hour:02d}:10:00Z",
        "known": f"2013-03-08T{hour if known is None else known:02d}:40:00Z",
        "delay": 30,
    }


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    lake = Settings(warehouse=tmp_path_factory.mktemp("cli") / "lake")
    own = {"WAREHOUSE": str(lake.warehouse), "DRIVER_MEMORY": "1g", "SHUFFLE_PARTITIONS": "2"}
    return {**os.environ, "COLUMNS": "200", **{f"TAILRACE_{name}": value for name, value in own.items()}}


def start(environment: dict[str, str], *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tailrace.cli.main", *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, news = process.communicate(timeout=800)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, news


def run(environment: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end: a stream in a process of its own, and in this one what looks at a lake."""
    if args[0] == "stream":
        with start(environment, *args) as process:
            return subprocess.CompletedProcess(args, *ended(process))
    done = CliRunner().invoke(app, args, env=environment)
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def epochs(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        said = json.loads(line)
        if said["event"] == "epoch":
            yield said


@pytest.fixture(scope="module")
def interrupted(environment: dict[str, str], folder: Path) -> tuple[int, str, str, int]:
    """A stream that was sent SIGINT in its third epoch: its status, what it said, and the last epoch it told of."""
    args = ("stream", DEFINITION, "--from", str(folder), "--per-epoch", "1", "--json", "--follow-every", "2")
    with start(environment, *args) as process:
        assert process.stdout is not None
        told = epochs(iter(process.stdout.readline, ""))
        last = next(told)["epoch"]
        last = next(told)["epoch"]
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        status, out, news = ended(process)
    rest = [json.loads(line) for line in out.splitlines()]
    assert rest[-1]["event"] == "summary", out
    return status, news, out, max([last, *(one["epoch"] for one in rest[:-1])])


def test_sigint_stops_at_an_epoch_boundary(interrupted: tuple[int, str, str, int], environment: dict[str, str]) -> None:
    status, news, out, last = interrupted
    assert status == 130, news
    summary = json.loads(out.splitlines()[-1])
    assert (summary["stopped"], summary["last_epoch"]) == (True, last)
    assert "Traceback" not in news
    found = json.loads(run(environment, "status", DEFINITION, "--json").stdout)
    # What was begun is whole: the log, the ledger and the answers stand at one epoch.
    assert (found["logs"][0]["epoch"], found["epoch"], found["answers_epoch"]) == (last, last, last)
    assert last < 12


@pytest.fixture(scope="module")
def drained(
    interrupted: tuple[int, str, str, int], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """The stream started again, until the folder has no more."""
    return run(environment, "stream", DEFINITION, "--from", str(folder), "--per-epoch", "4", "--once")


def test_a_restart_goes_on_where_it_was(
    drained: subprocess.CompletedProcess[str], interrupted: tuple[int, str, str, int], environment: dict[str, str]
) -> None:
    assert drained.returncode == 0, drained.stderr
    last = interrupted[3]
    # The micro-batch that the signal kept from beginning is taken first as it was planned, with its one file.
    took, left = int(drained.stdout.split()[0]), -(-(12 - last) // 4)
    assert took in (left, left + 1)
    assert f"epoch {last + 1}  " in drained.stderr
    assert " of 13 files" in drained.stderr
    found = json.loads(run(environment, "status", DEFINITION, "--json").stdout)
    end = last + took
    assert (found["logs"][0]["epoch"], found["logs"][0]["records"], found["logs"][0]["rejected"]) == (end, 37, 1)
    assert (found["epoch"], found["answers_epoch"], found["watermark"]) == (end, end, "2013-03-08T10:10:00Z")
    # Of each airport the hours 7 to 11: their end plus three hours of lateness is ahead of the watermark.
    assert found["open_windows"]["count"] == 15
    assert (found["answers"], found["late"]) == (36, 1)


def test_panes_show_a_window_s_history(drained: subprocess.CompletedProcess[str], environment: dict[str, str]) -> None:
    args = ("panes", DEFINITION, "--key", "JFK", "--window", "2013-03-08T03:00Z")
    found = json.loads(run(environment, *args, "--json").stdout)
    assert [(pane["timing"], pane["values"]["flights"]) for pane in found["panes"] if not pane["retraction"]][-1] == (
        "on_time", 1
    )  # fmt: skip
    assert (
        "answer  flights 1, departures 1, mean_delay 30  (on time, written by the stream)"
        in run(environment, *args).stdout
    )
    late = json.loads(
        run(environment, "panes", DEFINITION, "--key", "EWR", "--window", "2013-03-08T01:00Z", "--json").stdout
    )
    assert [one["reason"] for one in late["late"]] == ["expired"]


def test_the_tables_are_as_agreed(drained: subprocess.CompletedProcess[str], environment: dict[str, str]) -> None:
    result = run(environment, "tables", DEFINITION)
    assert (result.returncode, result.stdout.splitlines()[-1].strip()) == (0, "5 as agreed, 3 not made yet")


def test_a_backfill_takes_in_what_came_too_late(
    drained: subprocess.CompletedProcess[str], environment: dict[str, str]
) -> None:
    proposed = run(environment, "late", DEFINITION).stdout.splitlines()
    assert proposed[0] == "hourly_departures  1 late record"
    command = "backfill pipelines/flights.py --from 2013-03-08T01:00:00Z --to 2013-03-08T02:00:00Z"
    assert proposed[-2:] == ["to take them in:", f"tailrace {command}"]
    assert json.loads(run(environment, *command.split(), "--dry-run", "--json").stdout)["changed"] == 1
    args = ("backfill", DEFINITION, "--from", "2013-03-08", "--to", "2013-03-08T05:00", "--json")
    dry = json.loads(run(environment, *args, "--dry-run").stdout)
    assert (dry["changed"], dry["retracted"], dry["run"]) == (1, 0, None)
    done = run(environment, *args, "--reason", "late flights")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["changed"], found["untouched"]) == ("committed", 1, 14)
    assert run(environment, "late", DEFINITION).stdout.splitlines() == [
        "hourly_departures  1 late record, 1 of them taken in by backfills"
    ]
    again = run(environment, "panes", DEFINITION, "--key", "EWR", "--window", "2013-03-08T01:00Z")
    told = " ".join(again.stdout.split())
    assert "answer flights 2, departures 2, mean_delay 30 (correction, written by the backfill)" in told, told
    runs = json.loads(run(environment, "status", DEFINITION, "--json").stdout)["runs"]
    assert [(one["kind"], one["status"], one["reason"]) for one in runs][-1] == (
        "backfill",
        "committed",
        "late flights",
    )


def test_the_audit_adds_up(drained: subprocess.CompletedProcess[str], environment: dict[str, str]) -> None:
    result = run(environment, "audit", DEFINITION, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)["ok"] is True


def test_a_second_signal_stops_at_once(environment: dict[str, str], folder: Path, tmp_path: Path) -> None:
    elsewhere = environment | {"TAILRACE_WAREHOUSE": str(tmp_path / "lake")}
    with start(elsewhere, "stream", DEFINITION, "--from", str(folder)) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting Spark\n"
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        status, _, news = ended(process)
    assert (status, news) == (130, "stopped at once; the next start goes on after the last whole epoch\n")
