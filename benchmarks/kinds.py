"""What each kind of window and execution costs beside native fixed windows, in one session of ours.

The same views go through a stream of each definition, a file an epoch; what is compared is an epoch of the second half.
Each is audited at the end, so none is fast by being wrong. The reference execution folds some files in plain Python.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from tailrace.model.base.time import END_OF_TIME, duration, instant
from tailrace.model.combiners.basic import Sum
from tailrace.model.combiners.own import OwnCombiner, OwnWindows
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, Each, ElementWise
from tailrace.model.step.reference import fold
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import NOTHING, Fixed, Sessions, Sliding, Window
from tailrace.verify.audit import audit

GAP = timedelta(seconds=20)
FOLDED = 4
"""Files that the reference execution folds."""


@dataclass(frozen=True)
class Interpreted(Fixed):
    """Fixed windows that nobody compiles, for they might be any."""


@dataclass(frozen=True)
class ByBatch(OwnWindows):
    """The same windows for many records at once."""

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return Fixed(WINDOW).assign(at)

    def assign_batch(self, times: Any, records: Any) -> tuple[Any, Any]:
        size = duration(WINDOW)
        starts = times - times % size
        return starts, starts + size


def called(record: Mapping[str, Any]) -> dict[str, Any]:
    """Twice the price, by a function that is called for each record."""
    return {"twice": int(record["price"] * 2)}


STEPS: dict[str, ElementWise] = {
    "step": Derive({"twice": Col("price") * 2}),
    "step_traced": Each(lambda record: {"twice": record["price"] * 2}, {"twice": "bigint"}, "price"),
    "step_by_batch": EachBatch(
        lambda table: {"twice": pc.multiply(table["price"], 2)}, {"twice": "bigint"}, reads="price"
    ),
    "step_by_record": Each(called, {"twice": "bigint"}, reads="price"),
}
"""The same column by an expression, a function that is compiled to SQL, one of batches, and one of records."""


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
        "python_by_batch": ByBatch(),
        "own": Fixed(WINDOW),
        "own_by_batch": Fixed(WINDOW),
        **dict.fromkeys(STEPS, Fixed(WINDOW)),
        "fixed_again": Fixed(WINDOW),
    }.items():
        found[name] = replace(definition(f"kind_{name}", f"views_{name}"), where=where)
    for name, total in {"own": Total("price"), "own_by_batch": TotalByBatch("price")}.items():
        found[name] = replace(found[name], what={**found[name].what, "total": total})
    for name, step in STEPS.items():
        found[name] = replace(found[name], each=step, what={**found[name].what, "total": Sum("twice")})
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
