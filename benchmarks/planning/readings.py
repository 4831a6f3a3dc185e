"""What a process, Spark's log of events and the tables say of what a stream took."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import SparkSession

_COMPILER = ("C1 CompilerThre", "C2 CompilerThre")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Seconds of a driver so far: CPU of Python, of its JVM and of that JVM's compiler.

    `ran` and `waited` are of all its threads and those of its executors but the compiler's: on a core, and for one.
    """

    python: float
    jvm: float
    compiler: float
    ran: float
    waited: float

    def __sub__(self, before: Spent) -> Spent:
        return Spent(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


def spent(jvm: int, executors: Sequence[int] = ()) -> Spent:
    """Read them, of this process, the JVM with this process id, and its executors."""
    compiler = ran = waited = 0.0
    for process in (os.getpid(), jvm, *executors):
        for name, on_core, for_core in _threads(process):
            if name in _COMPILER:
                compiler += on_core if process == jvm else 0.0
            else:
                ran, waited = ran + on_core, waited + for_core
    return Spent(sum(os.times()[:2]), _cpu(jvm), compiler, ran, waited)


def jvm_of(spark: SparkSession) -> int:
    """Return the process id of a session's JVM."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def executors_of(application: str) -> list[int]:
    """The processes of an application's executors on this machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and application.encode() in words:
            found.append(int(process.name))
    return found


def _threads(process: int) -> Iterator[tuple[str, float, float]]:
    """The threads of a process: the name of each, its seconds on a core, and those that it waited for one."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            ran, waited, _ = (thread / "schedstat").read_text().split()
            yield (thread / "comm").read_text().strip(), int(ran) / 1e9, int(waited) / 1e9


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def machine_seconds() -> float:
    """Seconds so far that the machine's cores were busy with anything."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[place]) for place in (1, 2, 3, 6, 7, 8)) / _TICKS


@dataclass(frozen=True)
class Worked:
    """What the executors did: jobs, stages, tasks, their CPU seconds and the seconds that they took."""

    jobs: int
    stages: int
    tasks: int
    cpu: float
    run: float
    shuffled_bytes: int


def worked(log: Path, first: float, last: float) -> Worked:
    """Sum up what ended between two times, in seconds since 1970, of a file of Spark's events."""
    jobs, stages = set[int](), set[tuple[int, int]]()
    tasks, cpu, run, shuffled = 0, 0.0, 0.0, 0
    for event in _events(log):
        kind = event["Event"]
        if kind == "SparkListenerJobEnd" and first <= event["Completion Time"] / 1000 < last:
            jobs.add(event["Job ID"])
        if kind != "SparkListenerTaskEnd" or not first <= event["Task Info"]["Finish Time"] / 1000 < last:
            continue
        told = event.get("Task Metrics") or {}
        stages.add((event["Stage ID"], event["Stage Attempt ID"]))
        tasks += 1
        cpu += (told.get("Executor CPU Time", 0) + told.get("Executor Deserialize CPU Time", 0)) / 1e9
        run += (told.get("Executor Run Time", 0) + told.get("Executor Deserialize Time", 0)) / 1e3
        shuffled += (told.get("Shuffle Write Metrics") or {}).get("Shuffle Bytes Written", 0)
    return Worked(len(jobs), len(stages), tasks, cpu, run, shuffled)


def _events(log: Path) -> Iterable[dict[str, Any]]:
    with log.open() as lines:
        for line in lines:
            if line.startswith(('{"Event":"SparkListenerTaskEnd"', '{"Event":"SparkListenerJobEnd"')):
                yield json.loads(line)


@dataclass(frozen=True)
class Kept:
    """What the commits of a table left in all: files and bytes of data, of manifests and of lists of manifests.

    `versions` are those of the catalog, each a file of metadata: several make one snapshot that is published.
    `metadata_bytes` is the size of the last one, with `snapshots` in it.
    """

    snapshots: int
    versions: int
    files: int
    bytes: int
    manifests: int
    manifest_bytes: int
    list_bytes: int
    metadata_bytes: int


def kept(table: Table) -> Kept:
    """Look at all snapshots of a table."""
    snapshots = list(table.metadata.snapshots)
    files = written = manifests = manifest_bytes = list_bytes = 0
    for snapshot in snapshots:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        files += int(told.get("added-data-files", 0)) + int(told.get("added-delete-files", 0))
        written += int(told.get("added-files-size", 0))
        list_bytes += _size(snapshot.manifest_list)
        new = [one for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
        manifests += len(new)
        manifest_bytes += sum(one.manifest_length for one in new)
    last = _path(table.metadata_location)
    versions = int(last.name.split("-", 1)[0]) + 1
    return Kept(
        len(snapshots), versions, files, written, manifests, manifest_bytes, list_bytes, last.stat().st_size
    )  # fmt: skip


def _size(address: str) -> int:
    return _path(address).stat().st_size


def _path(address: str) -> Path:
    """The path of a file's address, which Spark and pyiceberg write differently."""
    return Path(address.removeprefix("file:").replace("///", "/", 1))
