"""What each kind of window and execution costs beside native fixed windows, in one session of ours.

The same views go through a stream of each definition, a file an epoch; what is compared is an epoch of the second half.
Each is audited at the end, so none is fast by being wrong. The reference execution folds some files in plain Python.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.cases import steady
from benchmarks.data import WINDOW, Views
from benchmarks.measure import JobError, Outcome, Task, serve
from benchmarks.ours import definition, run_stream
from tailrace.engines.spark.session import open_session
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.combiners.basic import Sum
from tailrace.model.combiners.own import OwnCombiner
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.step.reference import fold
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import Fixed, Sessions, Sliding
from tailrace.verify.audit import audit

GAP = timedelta(seconds=20)
FOLDED = 4
"""Files that the reference execution folds."""


@dataclass(frozen=True)
class Interpreted(Fixed):
    """Fixed windows that nobody compiles, for they might be any."""


@dataclass(frozen=True)
class Total(OwnCombiner):
    """A sum as a user would write it."""

    column: str
    state = gives = "bigint"

    def zero(self) -> Any:
        return 0

    def add(self, state: Any, value: Any) -> Any:
        return state + value

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def output(self, state: Any) -> Any:
        return state


@dataclass(frozen=True)
class TotalByBatch(Total):
    """The same sum over the values of all windows at once."""

    def add_groups(self, values: pa.Array, starts: NDArray[np.int64]) -> Any:
        return np.add.reduceat(values.to_numpy(), starts)


def kinds() -> dict[str, Pipeline]:
    """The definitions by name; `fixed` is what the others are compared with, and it comes twice."""
    found = {}
    for name, where in {
        "warm_up": Fixed(WINDOW),
        "fixed": Fixed(WINDOW),
        "sliding": Sliding(WINDOW, every=WINDOW / 4),
        "sessions": Sessions(GAP),
        "stages": Fixed(WINDOW),
        "python": Interpreted(WINDOW),
        "own": Fixed(WINDOW),
        "own_by_batch": Fixed(WINDOW),
        "fixed_again": Fixed(WINDOW),
    }.items():
        found[name] = replace(definition(f"kind_{name}", f"views_{name}"), where=where)
    for name, total in {"own": Total("price"), "own_by_batch": TotalByBatch("price")}.items():
        found[name] = replace(found[name], what={**found[name].what, "total": total})
    # Panes taken back as they change, and their totals by hundreds of advertisers and ten minutes, taken back as well.
    earlier = replace(found["stages"], name="kind_stages_by_advertiser", how=RETRACTING)
    found["stages"] = Pipeline(
        name="kind_stages",
        log=earlier.panes,
        each=Derive({"group": Col("advertiser") // 100}),
        key="group",
        what={"total": Sum("total"), "views": Sum("views")},
        where=Fixed(5 * WINDOW),
        when=Repeat(AfterCount(1)),
        how=RETRACTING,
    )
    return found


def compared(task: Task) -> Outcome:
    """An epoch of each kind, in seconds, among the facts; `reference` is records a second."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    took = {}
    for name, pipeline in kinds().items():
        views = task.warm_up if name == "warm_up" else task.views
        streamed = run_stream(spark, lake, pipeline, views, 1)
        took[name] = steady(streamed.seconds)
        for stage in pipeline.stages:
            found = audit(lake, stage)
            if not found.ok:
                raise JobError(f"{name}: {[check for check in found.checks if not check.ok]}")
    took["fixed"] = (took["fixed"] + took.pop("fixed_again")) / 2
    return Outcome([took["fixed"]], facts={"kinds": took, "reference": reference(task.views)})


def reference(views: Views) -> float:
    """Records a second of the reference execution, on fixed windows."""
    files = sorted(views.folder.glob("*.parquet"))[:FOLDED]
    bundles = [pq.read_table(file).to_pylist() for file in files]
    latest = [instant(max(record["viewed_at"] for record in bundle)) for bundle in bundles]
    marks = [max(latest[: place + 1]) for place in range(len(latest))]
    epochs = [(bundle, Clock(n, mark, mark)) for n, (bundle, mark) in enumerate(zip(bundles, marks, strict=True))]
    started = time.perf_counter()
    fold(definition("referenced"), [*epochs, ([], Clock(len(epochs), END_OF_TIME, marks[-1]))])
    return sum(map(len, bundles)) / (time.perf_counter() - started)


if __name__ == "__main__":
    serve({"compared": compared})
