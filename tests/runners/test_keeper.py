"""A stream's process: started once, found running, started again when it died, left alone when it was stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tailrace.runners.jobs import RunnerError, StreamJob, StreamState
from tailrace.runners.keeper import FINAL, Keeper
from tailrace.runners.processes import is_running
from tests.support.waiting import until

RUNS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))
print("begun", flush=True)
while True:
    time.sleep(0.05)
"""
ENDS = "import sys; print('error: ' + sys.argv[2], file=sys.stderr); sys.exit(int(sys.argv[1]))"


LATER = f"""
import pathlib, sys, time
while not pathlib.Path(sys.argv[3]).exists():
    time.sleep(0.02)
{ENDS}
"""


UNTIL = 60.0
"""Seconds within which a process of a busy machine does something."""


@dataclass
class Stream:
    """A program in the place of a stream."""

    place: Path
    told: list[str] = field(default_factory=list)

    def keep_running(self, *words: str, anew: bool = False) -> StreamState:
        command = [sys.executable, "-c", *(words or (RUNS,))]
        return Keeper(self.place, command, os.environ).keep_running(self.told.append, anew=anew)

    def stopped(self) -> StreamState:
        return Keeper(self.place, (), os.environ).stop(self.told.append)

    @property
    def begun(self) -> int:
        return self.place.with_suffix(".out").read_text().count("begun")

    @property
    def noted(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.place.with_suffix(".json").read_text())
        return found


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setattr("tailrace.runners.keeper.SEEN", 0.2)
    made = Stream(tmp_path / "stream")
    yield made
    made.stopped()


def gone(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def reaped() -> bool:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return not is_running(pid)

    until(reaped, UNTIL)


def test_a_stream_is_started_once_whoever_asks(stream: Stream) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = [one.result() for one in [pool.submit(stream.keep_running) for _ in range(4)]]
    assert sorted(one.state for one in found) == ["running", "running", "running", "started"]
    assert len({one.pid for one in found}) == 1
    until(lambda: stream.begun == 1, UNTIL)


def test_one_that_was_killed_is_started_again_and_it_says_so(stream: Stream) -> None:
    first = stream.keep_running()
    gone(first.pid)
    again = stream.keep_running()
    assert (again.state, again.ended) == ("started", "it was killed")
    assert again.pid != first.pid
    assert stream.keep_running() == StreamState(state="running", pid=again.pid, since=again.since)
    assert first.since is not None
    assert again.since is not None
    assert again.since > first.since


def test_one_that_failed_is_started_again_and_says_why_it_ended(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.runners.keeper.SEEN", UNTIL)
    with pytest.raises(RunnerError, match="the disk is full") as failed:
        stream.keep_running(ENDS, "3", "the disk is full")
    assert failed.value.again
    monkeypatch.setattr("tailrace.runners.keeper.SEEN", 0.2)
    assert stream.keep_running().ended == "the disk is full"


@pytest.mark.slow
@pytest.mark.parametrize("status", FINAL)
def test_one_that_another_start_does_not_mend_is_told_of_and_not_started_at_once(
    stream: Stream, status: int, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    assert stream.keep_running(LATER, str(status), "another stream has the lease", str(end)).state == "started"
    end.touch()
    until(lambda: stream.noted.get("status") == status, UNTIL)
    with pytest.raises(RunnerError, match="another stream has the lease") as told:
        stream.keep_running()
    assert not told.value.again
    assert stream.begun == 0
    assert stream.keep_running().state == "started", "somebody was told, and wants it again"


@pytest.mark.slow
def test_one_that_was_stopped_by_hand_stays_stopped_until_it_is_started_anew(stream: Stream) -> None:
    first = stream.keep_running()
    until(lambda: stream.begun == 1, UNTIL)
    assert stream.stopped().state == "stopped"
    assert stream.keep_running().state == "stopped"
    assert stream.begun == 1
    second = stream.keep_running(anew=True)
    assert second.state == "started"
    third = stream.keep_running(anew=True)
    assert third.state == "started"
    assert len({first.pid, second.pid, third.pid}) == 3
    assert stream.keep_running().pid == third.pid


def test_a_stream_outlives_its_keeper_and_is_still_known_to_run(stream: Stream) -> None:
    found = stream.keep_running()
    (keeper,) = [one for one in children(os.getpid()) if found.pid in children(one)]
    gone(keeper)
    assert stream.keep_running() == StreamState(state="running", pid=found.pid, since=found.since)


def children(pid: int) -> list[int]:
    task = Path(f"/proc/{pid}/task")
    return [int(child) for one in task.iterdir() for child in (one / "children").read_text().split()]


def test_a_job_is_checked_and_becomes_arguments_of_their_own() -> None:
    job = StreamJob.of(definitions=("/p.py",), folder="/landing; rm -rf /", every=1.5, per_epoch=3)
    assert job.words == ["/p.py", "--from=/landing; rm -rf /", "--format=json", "--every=1.5", "--per-epoch=3"]
    for wrong in (
        {},
        {"folder": "/a", "topic": "b"},
        {"topic": "two words"},
        {"folder": "relative"},
        {"topic": "a\nb"},
    ):
        with pytest.raises(RunnerError) as refused:
            StreamJob.of(definitions=("/p.py",), **wrong)
        assert not refused.value.again
        assert "\n" not in str(refused.value)
