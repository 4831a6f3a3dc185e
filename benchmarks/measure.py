"""A side's process: what it is asked, how it is started, and what it says of its time and memory.

Every measured job runs in a process of its own, so both sides have a JVM of the same age and settings, and each peak of
memory is one side's. The session of both is Tailrace's: the same catalog, heap, shuffle partitions and SQL settings.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.compare import answers
from benchmarks.data import Views
from tailrace.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
SHUFFLE_PARTITIONS = 2
LONGEST = 3600
"""Seconds after which a job is given up."""
LOOKS = 0.5
"""Seconds between two looks at the memory of a job's processes."""


class JobError(Exception):
    """A side's process failed; its output says why."""


@dataclass(frozen=True)
class Task:
    """What a side's process is asked to do. `home` is the run's own folder; `lake` that of the tables, which the runs
    on one landed log share.

    `warm_up` are views to run the same job on first, untimed. `per_epoch` bounds the files of a micro-batch, None for
    all at once. `repeats` is how often a job that can be repeated in a session is, `number` the place among the runs.
    `variant` names a way to do it. `cores` are those that the process and its JVM are bound to, None for all. `room` is
    `TAILRACE_MEMORY`, if any. `engine` runs our side: auto, duckdb or spark. `launched` is when the process was
    started, as `time.time` has it.
    """

    job: str
    home: Path
    lake: Path
    views: Views
    warm_up: Views
    per_epoch: int | None = None
    repeats: int = 1
    number: int = 0
    variant: str = ""
    cores: int | None = None
    room: str = ""
    memory: str = "4g"
    engine: str = "auto"
    launched: float = 0.0

    @property
    def settings(self) -> Settings:
        """Of a lake of the job's own."""
        room = {"memory": self.room} if self.room else {}
        return Settings(
            **room,
            warehouse=self.lake,
            driver_memory=self.memory,
            shuffle_partitions=self.cores or SHUFFLE_PARTITIONS,
            spark_master=f"local[{self.cores or '*'}]",
            namespace="main",
            engine=self.engine,
        )

    @property
    def answers(self) -> Path:
        """The file that the job leaves its answers in."""
        return self.home / "answers.parquet"

    @property
    def over(self) -> Path:
        """The file that says that the work is done; what a job does later is no part of what it takes."""
        return self.home / "over"

    def leave(self, rows: Callable[[], pa.Table]) -> None:
        """Read the answers, and write them for the comparison: the work is over."""
        self.over.touch()
        pq.write_table(answers(rows()), self.answers)


@dataclass(frozen=True)
class Outcome:
    """What a job found: the time of each repeat or epoch in seconds, and where that went."""

    seconds: list[float]
    phases: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Anything else worth keeping."""


Job = Callable[[Task], Outcome]


def run(side: str, task: Task) -> Outcome:
    """Run one job of a side in a process of its own. Raises `JobError` if it fails."""
    task.home.mkdir(parents=True)
    shown = task.home.relative_to(ROOT) if task.home.is_relative_to(ROOT) else task.home
    request = task.home / "task.json"
    request.write_text(json.dumps(asdict(replace(task, launched=time.time())), default=str))
    command = [sys.executable, "-m", f"benchmarks.{side}", str(request)]
    started, busy = time.perf_counter(), _machine_seconds()
    together = 0.0
    with (task.home / "output.txt").open("w") as output:
        job = start(command, task, output)
        try:
            while job.poll() is None and time.perf_counter() - started < LONGEST:
                if not task.over.exists():
                    together = max(together, _shared_out(job.pid))
                with suppress(subprocess.TimeoutExpired):
                    job.wait(LOOKS)
        finally:
            # Ended by itself, or too long at it, or this process is to end.
            job.kill()
            job.wait()
    found = task.home / "outcome.json"
    if job.returncode or not found.is_file():
        said = (task.home / "output.txt").read_text()[-3000:]
        raise JobError(f"{side}: {task.job} failed (exit code {job.returncode}); {shown}/output.txt ends:\n{said}")
    outcome = Outcome(**json.loads(found.read_text()))
    others = _machine_seconds() - busy - outcome.facts["process_cpu"]
    outcome.facts["together_mb"] = together
    outcome.facts["others_cores"] = round(max(0.0, others) / (time.perf_counter() - started), 2)
    return outcome


def start(command: Sequence[str], task: Task, output: IO[str]) -> subprocess.Popen[bytes]:
    """Start a side's process, bound to the task's cores."""
    own = sorted(os.sched_getaffinity(0))[: task.cores]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(task.home),
        stdout=output,
        stderr=subprocess.STDOUT,
        preexec_fn=partial(os.sched_setaffinity, 0, own),  # This process has one thread.
    )


def environment(home: Path) -> dict[str, str]:
    """The environment of a side's process: its JVM logs its collections, and settings of the shell do not reach it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    kept |= {name: os.environ[name] for name in ("TAILRACE_JARS", "TAILRACE_JAVA_HOME") if name in os.environ}
    return kept | {"JDK_JAVA_OPTIONS": f"-Xlog:gc:file={home}/gc.txt", "PYTHONWARNINGS": "ignore"}


def serve(jobs: Mapping[str, Job]) -> None:
    """What a side's module does when it is run: the one task of its argument."""
    given = json.loads(Path(sys.argv[1]).read_text())
    views = {name: Views(Path(given[name]["folder"]), given[name]["files"]) for name in ("views", "warm_up")}
    task = Task(**{**given, **views, "home": Path(given["home"]), "lake": Path(given["lake"])})
    outcome = jobs[task.job](task)
    outcome.facts.update(memory(task.home), process_cpu=cpu_seconds())
    unfinished = task.home / "outcome.unfinished"
    unfinished.write_text(json.dumps(asdict(outcome)))
    unfinished.rename(task.home / "outcome.json")


def memory(home: Path) -> dict[str, float]:
    """Peaks in MB: resident memory of the JVM and of Python, workers too, and the heap before and after collections.

    The heap after a collection is about what was needed. Each process has its own peak, at a time of its own, with all
    pages that it shares with others: what the machine had to give at once is `together_mb`, which `run` finds.
    """
    peaks = {"python_rss_mb": _resident(os.getpid())}
    for process in _descendants(os.getpid()):
        with suppress(OSError):
            which = "jvm_rss_mb" if Path(f"/proc/{process}/comm").read_text().strip() == "java" else "python_rss_mb"
            peaks[which] = peaks.get(which, 0.0) + _resident(process)
    if (home / "gc.txt").is_file():
        pauses = re.findall(r"\b(\d+)M->(\d+)M\(\d+M\)", (home / "gc.txt").read_text())
        peaks["heap_peak_mb"] = float(max((int(before) for before, _ in pauses), default=0))
        peaks["heap_after_gc_mb"] = float(max((int(after) for _, after in pauses), default=0))
    return peaks


def cpu_seconds() -> float:
    """CPU seconds so far of this process, its JVM, that one's Python, and the processes that these have waited for."""
    ticks = sum(os.times()[:4])
    for process in _descendants(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return ticks


def _machine_seconds() -> float:
    """Seconds so far that the machine's cores were not idle, or were another machine's; 0 where that is not told."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    # user, nice, system; then idle and waiting; then interrupts and what the host took.
    return sum(int(fields[place]) for place in (1, 2, 3, 6, 7, 8)) / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have, that are still there."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(process.name))
    found, waiting = list[int](), [pid]
    while waiting:
        started = children.get(waiting.pop(), [])
        found += started
        waiting += started
    return found


def _shared_out(pid: int) -> float:
    """The memory of a process and its descendants now, in MB; a page of several counts once. 0 where nobody says.

    A process that a JVM starts has all of the JVM's memory, not a page less, until it runs another program: such a one
    is left out.
    """
    total, machines = 0, set[int]()
    for process in (pid, *_descendants(pid)):
        with suppress(OSError):
            name, rest = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)
            if name.endswith("(java"):
                machines.add(process)
                if int(rest.split()[1]) in machines:
                    continue
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return round(total / 1024, 1)


def _resident(pid: int) -> float:
    """The high-water mark of a process's resident memory, in MB; 0 where the system does not say."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return round(int(found[1]) / 1024, 1) if found else 0.0
