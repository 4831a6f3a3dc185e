"""A process that streams shapes one after the other in one Spark, and says what an epoch of each takes.

CPU seconds are what is compared: a machine that has others to serve makes epochs longer, and CPU seconds hardly.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.planning.growth import grown, maintained
from benchmarks.planning.readings import Spent, executors_of, jvm_of, kept, machine_seconds, spent, worked
from benchmarks.planning.shapes import (
    CLUSTER,
    COLUMNS,
    DISORDER,
    MAINTAINED,
    SHAPES,
    SKIPPED,
    WARM_UP,
    WINDOW,
    Shape,
    landed,
)
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING
from tailrace.model.windows.windows import Fixed
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream

_A_FILE = str(1 << 30)
"""Bytes that opening a file is said to cost, and the most of a task: so each file is a task's."""


@dataclass
class Watched:
    """The epochs of a stream, with what the process had spent at the end of each."""

    jvm: int
    executors: list[int]
    epochs: list[tuple[float, Spent, float, EpochReport]] = field(default_factory=list)

    def __call__(self, report: EpochReport) -> None:
        self.epochs.append((time.time(), spent(self.jvm, self.executors), machine_seconds(), report))


def pipeline_of(shape: Shape) -> Pipeline:
    """Price and number of views by advertiser and day: each epoch gives a pane of each window that it touches."""
    log = Log(name=f"{shape.name}_views", columns=COLUMNS, event_time="viewed_at", disorder=DISORDER)
    return Pipeline(
        name=shape.name,
        log=log,
        key="advertiser",
        what={"total": Sum("price"), "views": Count()},
        where=Fixed(WINDOW),
        when=Repeat(AfterCount(1)),
        how=ACCUMULATING,
    )


def streamed(settings: Settings, shape: Shape, home: Path, events: Path) -> dict[str, Any]:
    """Stream a shape, and give what one of its epochs takes on average."""
    settings = settings.model_copy(update={"shuffle_partitions": shape.shuffles})
    settled = {"spark.sql.files.maxPartitionBytes": _A_FILE, "spark.sql.files.openCostInBytes": _A_FILE}
    spark, lake, pipeline = open_session(settings, extra=settled), Lake(settings), pipeline_of(shape)
    folder = landed(shape, home / shape.name)
    pid = jvm_of(spark)
    heap_before, watched = _heap(spark), Watched(pid, executors_of(spark.sparkContext.applicationId))
    stream = Stream(
        spark, lake, [pipeline], Files(str(folder), "json", shape.sources), follow_every=shape.follow, watch=watched
    )
    stream.start(once=True)
    stream.wait()
    heap = _heap(spark)
    state = sum(int(one.memSize()) for one in spark.sparkContext._jsc.sc().getRDDStorageInfo())
    stream.close()
    shutil.rmtree(folder)
    # The last epoch has none after it whose landing runs beside it.
    reports = watched.epochs[SKIPPED - 1 : -1]
    (first, before, busy_before, _), (last, after, busy, _) = reports[0], reports[-1]
    count, took = len(reports) - 1, after - before
    ours, epochs = worked(events, first, last), [report for *_, report in reports[1:]]
    here = settings.spark_master.startswith("local")
    driver = took.jvm - took.compiler - (ours.cpu if here else 0.0)
    others = busy - busy_before - took.python - took.jvm - (0.0 if here else ours.cpu)
    phases = {name for epoch in epochs for name in epoch.phases}
    tables = {"log": f"{shape.name}_views", "ledger": f"{shape.name}__ledger", "answers": shape.name}
    return {
        "shape": asdict(shape),
        "epochs": count,
        "seconds": median(epoch.seconds for epoch in epochs),
        "phases": {name: round(fmean(epoch.phases.get(name, 0.0) for epoch in epochs), 4) for name in sorted(phases)},
        "driver_jvm_cpu": driver / count,
        "driver_python_cpu": took.python / count,
        "compiler_cpu": took.compiler / count,
        "executor_cpu": ours.cpu / count,
        "executor_run": ours.run / count,
        "jobs": ours.jobs / count,
        "stages": ours.stages / count,
        "tasks": ours.tasks / count,
        "shuffled_bytes": ours.shuffled_bytes / count,
        "panes": fmean(epoch.folded[shape.name].panes for epoch in epochs),
        "heap_before": heap_before,
        "heap": heap,
        "state_bytes": state,
        "waiting": took.waited / (took.ran + took.waited),
        "others_cores": round(max(0.0, others) / (last - first), 2),
        "tables": {name: asdict(kept(lake.table(table))) for name, table in tables.items()},
    }


def _heap(spark: SparkSession) -> int:
    """Bytes of the driver's heap that are in use after a collection."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    return int(jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def main(request: Path) -> None:
    asked = json.loads(request.read_text())
    home = Path(asked["home"])
    settings = Settings(
        warehouse=home / "lake",
        spark_master=asked["master"],
        engine="spark",
        driver_memory="2g",
        memory="1GB",
        windows_in_driver=0,
    )
    events = home / "events"
    events.mkdir()
    extra = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    extra |= {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false", **asked["options"]}
    spark = open_session(settings, extra=extra)
    log = events / f"{spark.sparkContext.applicationId}.inprogress"
    shapes = {one.name: one for one in (WARM_UP, *SHAPES, *CLUSTER)}
    found, aged = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, name in enumerate([WARM_UP.name, *asked["shapes"]]):
        began = time.perf_counter()
        within = settings.model_copy(update={"namespace": f"of_{number}"})
        found.append({"kind": asked["kind"], "cores": asked["cores"], **streamed(within, shapes[name], home, log)})
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        (home / "found.json").write_text(json.dumps(found[1:], indent=1))
    if asked["growth"]:
        names = [WARM_UP.name, *asked["shapes"]]
        places = {name: settings.model_copy(update={"namespace": f"of_{names.index(name)}"}) for name in MAINTAINED}
        # The first maintenance in a process is for Spark to get warm.
        for name in (WARM_UP.name, *MAINTAINED):
            where = places.get(name, settings.model_copy(update={"namespace": "of_0"}))
            aged.append(maintained(where, pipeline_of(shapes[name]), shapes[name]))
        told = {"commits": grown(settings, spark), "maintenance": aged[1:]}
        (home / "growth.json").write_text(json.dumps(told, indent=1))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
