"""The cost of an epoch on Spark: an explicit model, its coefficients, and how far it is off what it was not fitted to.

An epoch has tasks and files by its partitions, and costs the driver CPU seconds by those and the executors CPU seconds
by its records and windows. How long it takes follows from both and from the cores. Nothing else is in it: not the
network between machines, not S3, not uneven keys (`assumptions.py` has what is assumed of them).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.planning.least_squares import nonnegative

QUIET = 0.2
"""Cores that others may take beside a stream whose length counts: of CPU time they take next to nothing."""

ENOUGH = 6
"""Streams that had the machine to themselves, without which lengths are not fitted."""

LEDGER_KINDS = 2
"""Files of the ledger that a task writes in an epoch: of partials and of panes. Late records would be a third."""

Row = Mapping[str, Any]
"""A measurement, as `measured.json` has it."""


@dataclass(frozen=True)
class Load:
    """An epoch's content: records, the windows that they touch and those that are open, in so many parts.

    `followed` says that the answers are brought up after it.
    """

    records: float
    touched: float
    open: float
    sources: int
    shuffles: int
    followed: bool = False

    @property
    def files(self) -> int:
        """Data files of the log and of the ledger."""
        return self.sources + LEDGER_KINDS * self.shuffles

    @classmethod
    def of(cls, row: Row) -> Load:
        shape = row["shape"]
        # Answers follow each `follow` epochs, asked for two epochs early: of the few that are measured all or none.
        return cls(
            shape["records"], row["panes"], shape["open"], shape["sources"], shape["shuffles"], shape["follow"] <= 3
        )


@dataclass(frozen=True)
class Costs:
    """The coefficients, in CPU seconds, seconds and bytes."""

    tasks_of_source: float
    tasks_of_shuffle: float
    tasks_fixed: float
    driver_epoch: float
    driver_task: float
    driver_file: float
    driver_follow: float
    driver_followed_row: float
    executor_task: float
    executor_file: float
    executor_record: float
    executor_touched: float
    executor_open: float
    seconds_epoch: float
    seconds_of_driver: float
    seconds_of_executor: float
    seconds_known: float
    """How many times an epoch's length passes from its trigger until it is published: the next is landed beside it."""
    heap: float
    heap_epoch: float
    heap_task: float
    heap_window: float
    """Bytes of an open window, which are the executors' own."""
    commit_snapshot: float
    """CPU seconds of a commit for each snapshot that the table has."""
    maintain_file: float
    maintain_record: float
    file_bytes: float
    log_bytes: float
    ledger_bytes: float
    answer_bytes: float
    metadata_fixed: float
    metadata_snapshot: float
    manifest_fixed: float
    manifest_file: float
    list_bytes: float

    def tasks(self, load: Load) -> float:
        return self.tasks_of_source * load.sources + self.tasks_of_shuffle * load.shuffles + self.tasks_fixed

    def driver(self, load: Load) -> float:
        """CPU seconds of the driver."""
        follows = self.driver_follow + self.driver_followed_row * load.open if load.followed else 0.0
        return self.driver_epoch + self.driver_task * self.tasks(load) + self.driver_file * load.files + follows

    def executor_parts(self, load: Load) -> tuple[float, float]:
        """CPU seconds of the executors: of tasks that read a source's partition, and of those after a shuffle."""
        reading = (
            self.executor_task * (self.tasks_of_source * load.sources)
            + self.executor_file * load.sources
            + self.executor_record * load.records
        )
        folding = (
            self.executor_task * (self.tasks_of_shuffle * load.shuffles + self.tasks_fixed)
            + self.executor_file * LEDGER_KINDS * load.shuffles
            + self.executor_touched * load.touched
            + self.executor_open * load.open
        )
        return reading, folding

    def executor(self, load: Load) -> float:
        """CPU seconds of the executors."""
        return sum(self.executor_parts(load))

    def makespan(self, load: Load, cores: int) -> float:
        """CPU seconds on the busiest core: tasks come in waves, as many at a time as there are cores."""
        reading, folding = self.executor_parts(load)
        return (
            reading / load.sources * math.ceil(load.sources / cores)
            + folding / load.shuffles * math.ceil(load.shuffles / cores)
        )  # fmt: skip

    def seconds(self, load: Load, cores: int) -> float:
        """Seconds from an epoch to the next, where the next is there."""
        return (
            self.seconds_epoch
            + self.seconds_of_driver * self.driver(load)
            + self.seconds_of_executor * self.makespan(load, cores)
        )


def fit(measured: Mapping[str, Any]) -> Costs:
    """Fit the coefficients to the streams that are not held out, and to what was measured of commits and upkeep."""
    rows = [row for row in measured["streams"] if not row["shape"]["held_out"]]
    loads = [Load.of(row) for row in rows]
    tasks = nonnegative([(one.sources, one.shuffles, 1) for one in loads], [row["tasks"] for row in rows])
    told = dict(zip(("tasks_of_source", "tasks_of_shuffle", "tasks_fixed"), tasks, strict=True))
    both = list(zip(rows, loads, strict=True))
    # Answers follow in Python and in DuckDB, of this process; what the JVM does besides would drown it.
    planning = nonnegative([(1, row["tasks"], one.files) for row, one in both], [row["driver_jvm_cpu"] for row in rows])
    python = nonnegative(
        [(1, row["tasks"], one.followed, one.followed * one.open) for row, one in both],
        [row["driver_python_cpu"] for row in rows],
    )
    driver = (planning[0] + python[0], planning[1] + python[1], planning[2], *python[2:])
    executor = nonnegative(
        [(row["tasks"], one.files, one.records, one.touched, one.open) for row, one in both],
        [row["executor_cpu"] for row in rows],
    )
    told |= dict(zip(_DRIVER, driver, strict=True)) | dict(zip(_EXECUTOR, executor, strict=True))
    told |= _tables(measured) | _memory(rows)
    told["seconds_known"] = median(_known(row) for row in rows)
    bare = Costs(**told, seconds_epoch=0.0, seconds_of_driver=0.0, seconds_of_executor=0.0)
    told |= _lengths(bare, rows, loads)
    return Costs(**told)


def _lengths(bare: Costs, rows: Sequence[Row], loads: Sequence[Load]) -> dict[str, float]:
    """How long an epoch is, from the CPU seconds that it takes.

    A CPU second of the executors takes a second at least on a core of theirs, so only what is above one is fitted.
    Those of the driver may take less: it plans an epoch's fold while it plans the landing of the next one. Where too
    few of the streams had the machine to themselves nothing is fitted, and a CPU second is taken for a second.
    """
    quiet = [(row, one) for row, one in zip(rows, loads, strict=True) if undisturbed(row)]
    if len(quiet) < ENOUGH:
        return {"seconds_epoch": 0.0, "seconds_of_driver": 1.0, "seconds_of_executor": 1.0}
    lasting = [(bare.driver(one), bare.makespan(one, row["cores"])) for row, one in quiet]
    above = [row["seconds"] - core for (row, _), (_, core) in zip(quiet, lasting, strict=True)]
    found = nonnegative([(1, *one) for one in lasting], above, [row["seconds"] for row, _ in quiet])
    return {"seconds_epoch": found[0], "seconds_of_driver": found[1], "seconds_of_executor": 1 + found[2]}


_DRIVER = ("driver_epoch", "driver_task", "driver_file", "driver_follow", "driver_followed_row")
_EXECUTOR = ("executor_task", "executor_file", "executor_record", "executor_touched", "executor_open")


def driver_cpu(row: Row) -> float:
    """CPU seconds of the driver in an epoch, both of Python and of the JVM."""
    return float(row["driver_jvm_cpu"] + row["driver_python_cpu"])


def undisturbed(row: Row) -> bool:
    """Whether a stream had the machine to itself, so that its length says something."""
    return float(row["others_cores"]) <= QUIET


@dataclass(frozen=True)
class Error:
    """How far predictions are off, relative to what was measured: half of them less than `median`, one by `worst`."""

    count: int
    median: float
    worst: float


PREDICTED = ("tasks", "files", "data", "metadata", "driver_cpu", "executor_cpu", "heap", "seconds")
"""The quantities that are compared."""


def errors(costs: Costs, rows: Iterable[Row]) -> dict[str, Error]:
    """Compare the model with measurements, each quantity predicted from the epoch's content alone.

    Lengths are left out of streams that had others beside them, and the quantity where it is so of all.
    """
    off: dict[str, list[float]] = {name: [] for name in PREDICTED}
    for row in rows:
        said, is_so = predicted(costs, row), found(row)
        for name in PREDICTED if undisturbed(row) else PREDICTED[:-1]:
            # A collection may find more that is left of the stream before than this one leaves.
            if is_so[name] > 0:
                off[name].append(abs(said[name] / is_so[name] - 1))
    return {name: Error(len(each), median(each), max(each)) for name, each in off.items() if each}


def predicted(costs: Costs, row: Row) -> dict[str, float]:
    load = Load.of(row)
    keeping = zip((costs.heap_epoch, costs.heap_task, costs.heap_window), _keeps(row, costs.tasks(load)), strict=True)
    return {
        "tasks": costs.tasks(load),
        "files": float(load.files),
        "data": costs.file_bytes * load.files * row["shape"]["epochs"]
        + costs.log_bytes * _landed(row)
        + costs.ledger_bytes * _paned(row),
        "metadata": _metadata(costs, row, load),
        "driver_cpu": costs.driver(load),
        "executor_cpu": costs.executor(load),
        "heap": sum(each * count for each, count in keeping),
        "seconds": costs.seconds(load, row["cores"]),
    }


def found(row: Row) -> dict[str, float]:
    """Return what was measured of a stream: bytes of data, metadata and heap by all of it, the rest by an epoch."""
    both = [row["tables"][table] for table in ("log", "ledger")]
    files = sum(row["tables"][table]["files"] for table in ("log", "ledger")) / row["shape"]["epochs"]
    return {
        "tasks": row["tasks"],
        "files": files,
        "data": sum(one["bytes"] for one in both),
        "metadata": sum(one["manifest_bytes"] + one["list_bytes"] + one["metadata_bytes"] for one in both),
        "driver_cpu": driver_cpu(row),
        "executor_cpu": row["executor_cpu"],
        "heap": _grown(row),
        "seconds": row["seconds"],
    }


def held_out(measured: Mapping[str, Any], kind: str) -> list[Row]:
    """The measurements of a kind, `local` or `cluster`, that nothing was fitted to."""
    return [row for row in measured["streams"] if row["shape"]["held_out"] and row["kind"] == kind]


def _metadata(costs: Costs, row: Row, load: Load) -> float:
    """Bytes of manifests and lists of log and ledger, and of the last file of metadata of each."""
    epochs, snapshots = row["shape"]["epochs"], sum(row["tables"][table]["snapshots"] for table in ("log", "ledger"))
    manifests = 2 * epochs * costs.manifest_fixed + costs.manifest_file * epochs * load.files
    return float(manifests + snapshots * (costs.list_bytes + costs.metadata_snapshot) + 2 * costs.metadata_fixed)


def _grown(row: Row) -> float:
    """Bytes that a stream adds to the driver's heap."""
    return float(row["heap"] - row["heap_before"])


def _keeps(row: Row, tasks: float) -> tuple[float, float, float]:
    """Return the numbers that a driver's heap grows with: epochs, tasks and, on one machine, open windows."""
    shape = row["shape"]
    return shape["epochs"], tasks * shape["epochs"], shape["open"] if row["kind"] == "local" else 0


def _known(row: Row) -> float:
    phases = row["phases"]
    beside = max(phases["land"], phases["consume"] + phases["step"])
    return float(max(1.0, (phases["trigger"] + phases["read"] + beside + phases["publish"]) / row["seconds"]))


def _memory(rows: Sequence[Row]) -> dict[str, float]:
    """What the driver's heap keeps of each epoch and of each task: Spark's record of what ran, up to its limits."""
    grew = [row for row in rows if _grown(row) > 0]
    each = nonnegative([_keeps(row, row["tasks"]) for row in grew], list(map(_grown, grew)))
    first = min(row["heap_before"] for row in rows)
    return {"heap": float(first), "heap_epoch": each[0], "heap_task": each[1], "heap_window": each[2]}


def _tables(measured: Mapping[str, Any]) -> dict[str, float]:
    rows = [row for row in measured["streams"] if not row["shape"]["held_out"]]
    commits, upkeep = measured["commits"], measured["maintenance"]
    growth = nonnegative([(1, one["snapshots"]) for one in commits], [one["cpu"] for one in commits])
    size = nonnegative([(1, one["snapshots"]) for one in commits], [one["metadata_bytes"] for one in commits])
    kept = nonnegative([(one["files"], one["records"]) for one in upkeep], [one["cpu"] for one in upkeep])
    per_epoch = [(table, row["shape"]["epochs"]) for row in rows for name, table in row["tables"].items()
                 if name != "answers"]  # fmt: skip
    manifest = nonnegative(
        [(1, table["files"] / epochs) for table, epochs in per_epoch],
        [table["manifest_bytes"] / epochs for table, epochs in per_epoch],
    )
    data = nonnegative(
        [(row["tables"]["log"]["files"], _landed(row), 0) for row in rows]
        + [(row["tables"]["ledger"]["files"], 0, _paned(row)) for row in rows],
        [row["tables"][table]["bytes"] for table in ("log", "ledger") for row in rows],
    )
    snapshot = median((table["metadata_bytes"] - size[0]) / table["snapshots"] for table, _ in per_epoch)
    return {
        "commit_snapshot": growth[1],
        "maintain_file": kept[0],
        "maintain_record": kept[1],
        "file_bytes": data[0],
        "log_bytes": data[1],
        "ledger_bytes": data[2],
        "answer_bytes": median(_answer_bytes(row) for row in rows if row["shape"]["open"] >= 5_000),
        "metadata_fixed": size[0],
        "metadata_snapshot": max(size[1], snapshot),
        "manifest_fixed": manifest[0],
        "manifest_file": manifest[1],
        "list_bytes": median(table["list_bytes"] / table["snapshots"] for table, _ in per_epoch),
    }


def _landed(row: Row) -> float:
    shape = row["shape"]
    return float(max(shape["records"], shape["open"]) + (shape["epochs"] - 1) * shape["records"])


def _paned(row: Row) -> float:
    """Panes of all epochs of a stream; the first opens each window."""
    return float(row["shape"]["open"] + (row["shape"]["epochs"] - 1) * row["panes"])


def _answer_bytes(row: Row) -> float:
    """Bytes of an answer: each following writes all of those that are open anew."""
    table = row["tables"]["answers"]
    return float(table["bytes"] / max(1, table["snapshots"] - 1) / row["shape"]["open"])
