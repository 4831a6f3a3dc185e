"""Runs with another installation of Python: as those of the runner of this one, cancelled with it, and never mixed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import venv
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tailrace
from tailrace.model.base.time import instant
from tailrace.runners.exit_status import ExitStatus
from tailrace.runners.jobs import BackfillJob, Cancelled, RunnerError, StreamJob
from tailrace.runners.local import Local
from tailrace.runners.venv import Venv
from tailrace.settings import Settings
from tailrace.testing.lakes import LakeStream, ScratchLake

DEFINITION = """
print("a definition that prints")
from tailrace import AfterWatermark, Count, Fixed, Log, Pipeline, minutes
LOG = Log(name="rides", columns={"who": "string", "day": "timestamp"}, event_time="day", disorder=minutes(10))
HOURLY = Pipeline(
    name="hourly", log=LOG, key="who", what={"n": Count()}, where=Fixed(minutes(60)), when=AfterWatermark(),
    allowed_lateness=minutes(0),
)
"""
FIRST, LAST = (instant(datetime(2026, 1, 1, hour, tzinfo=UTC)) for hour in (8, 9))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A venv with the packages of this one, and without pip, so that it is made at once."""
    place = tmp_path / "other"
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    paths = [str(Path(tailrace.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "shared.pth").write_text("\n".join(paths))
    return place


@pytest.fixture
def definition(lake: ScratchLake, stream: LakeStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a definition that was streamed, with a late record, into the lake of the environment's settings."""
    file = tmp_path / "hourly.py"
    file.write_text(DEFINITION)
    scope: dict[str, object] = {}
    exec(DEFINITION, scope)
    for time in ("08:05", "10:05", "08:15"):
        stream(scope["HOURLY"], [{"who": "ann", "day": f"2026-01-01T{time}:00Z"}])  # type: ignore[arg-type]
    stream.settle()
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(lake.settings.warehouse))
    monkeypatch.setenv("TAILRACE_CONTRACTS", str(lake.settings.contracts))
    monkeypatch.setenv("TAILRACE_MEMORY", "500MB")
    return file


def job(definition: Path | str, **more: object) -> BackfillJob:
    return BackfillJob.of(definition=str(definition), first=FIRST, last=LAST, **more)


def test_a_backfill_in_a_venv_does_what_the_local_one_does(
    other: Path, definition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyiceberg.py").write_text("raise RuntimeError('a module of the working folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (compared,) = Local().backfill(job(definition, dry_run=True), print)
    told: list[str] = []
    (same,) = Venv(other).backfill(job(definition, dry_run=True), told.append)
    differs = {"seconds": 0.0}
    assert same.model_copy(update=differs) == compared.model_copy(update=differs)
    assert told == ["comparing hourly"]
    (done,) = Venv(other / "bin" / "python").backfill(job(definition, reason='"; exit 1 # $(no)'), print)
    assert (done.changed, done.untouched, done.dry_run) == (1, 0, False)
    (again,) = Local().backfill(job(definition), print)
    assert (again.changed, again.untouched) == (0, 1), "the venv's run is in the lake of the settings"


@pytest.mark.slow
def test_a_run_that_a_venv_refuses_is_refused_as_locally(other: Path, definition: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path / "none.py", f"{definition}:NOTHING"):
        raised = []
        for runner in (Local(), Venv(other)):
            with pytest.raises(RunnerError) as refused:
                runner.backfill(job(wrong), print)
            raised.append((str(refused.value), refused.value.again))
        assert raised[0] == raised[1]
        assert not raised[0][1]
    settings = Settings(warehouse="/nowhere/at/all")
    with pytest.raises(RunnerError) as refused:
        Venv(other, settings=settings).backfill(job(definition), print)
    assert "/nowhere/at/all" in str(refused.value), "the settings that are given reach the venv"


SLOW = "import time\nfor _ in range(40): time.sleep(0.05)\n" + DEFINITION


@pytest.mark.slow
def test_a_run_is_cancelled_with_its_task_and_with_the_death_of_its_task(
    other: Path, definition: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW)
    runner = Venv(other)
    threading.Timer(1.5, runner.cancel).start()
    with pytest.raises(Cancelled):
        runner.backfill(job(slow), print)
    with pytest.raises(Cancelled, match="before it began"):
        runner.backfill(job(definition), print)

    for end in ("signal", "input"):
        process = subprocess.Popen(
            runner.command("tailrace.runners.venv_job"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=runner.environment, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"version": tailrace.__version__}
        process.stdin.write(json.dumps({"backfill": job(slow).model_dump_json()}) + "\n")
        process.stdin.flush()
        if end == "signal":
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.stdin.close()
        assert "cancelled" in json.loads(process.stdout.read().splitlines()[-1])["failed"]
        assert process.wait() == ExitStatus.INTERRUPTED
        process.stdin.close()
        process.stdout.close()


def test_a_stream_is_told_to_the_other_installation(other: Path, definition: Path, tmp_path: Path) -> None:
    asked = StreamJob.of(definitions=(str(definition),), folder=str(tmp_path))
    assert Venv(other).stop_stream(asked, print).state == "stopped"
    assert Venv(other).stream(asked, print).state == "stopped", "it was stopped by hand"


@pytest.mark.slow
def test_an_installation_without_tailrace_or_with_another_version_is_refused(
    other: Path, definition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    for wrong, said in (
        (bare, r"has no tailrace of this version, .*pip install 'tailrace=="),
        (tmp_path / "nowhere", "cannot be run .No such file"),
    ):
        with pytest.raises(RunnerError, match=said) as refused:
            Venv(wrong).backfill(job(definition), print)
        assert not refused.value.again
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho 'error: no room' >&2\nkill -9 $$\n")
    dying.chmod(0o755)
    with pytest.raises(RunnerError, match="killed by signal 9: no room") as refused:
        Venv(dying).backfill(job(definition), print)
    assert refused.value.again
    monkeypatch.setattr(tailrace, "__version__", "0.0.1")
    with pytest.raises(RunnerError, match=r"has tailrace .*, and .* has 0\.0\.1") as refused:
        Venv(other).backfill(job(definition), print)
    assert not refused.value.again
