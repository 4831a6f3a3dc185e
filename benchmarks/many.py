"""B15: many definitions of one log in one stream beside one of them alone, in one session each.

The definitions are made by a loop over keys, windows, combiners and filters, as a team would make a report for each of
its customers: no two are equal, and many have something in common. The first, which is run alone, has the most keys.
"""

from __future__ import annotations

import resource
import time
from datetime import timedelta
from itertools import islice, product
from statistics import median

from benchmarks.cases import Plan, Result, steady
from benchmarks.data import VIEWS_A_FILE, WINDOW
from benchmarks.measure import JobError, Outcome, Task, cpu_seconds, serve
from benchmarks.ours import BEHIND, definition, mean_phases
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.conditions import Match
from tailrace.model.base.expressions import Col
from tailrace.model.combiners.basic import Combiner, Count, Max, Mean, Min, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING
from tailrace.model.windows.windows import Fixed, Sliding
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

COUNT = 200
"""The number of definitions."""

FILES = 40
"""The number of epochs, each of one file, that the definitions fold."""

AUDITED = 5
"""The number of definitions that are audited at the end."""

_KEYS = ("advertiser", "segment", "band", ())
_WINDOWS = (
    Fixed(WINDOW),
    Fixed(timedelta(minutes=10)),
    Fixed(timedelta(hours=1)),
    Sliding(timedelta(minutes=4), every=timedelta(minutes=2)),
    Fixed(timedelta(seconds=30)),
)
_WHAT: tuple[dict[str, Combiner], ...] = (
    {"total": Sum("price"), "views": Count()},
    {"views": Count()},
    {"most": Max("price"), "least": Min("price")},
    {"mean": Mean("price")},
    {"total": Sum("price"), "most": Max("price"), "views": Count()},
)
_KEPT = (None, Match("price", ">", 25_000))


def definitions(count: int) -> list[Pipeline]:
    """Return the first `count` definitions; no two have the same key, window, filter and results."""
    each = Derive({"segment": Col("advertiser") - Col("advertiser") // 100 * 100, "band": Col("price") // 5_000})
    log = definition("totals").log
    return [
        Pipeline(
            name=f"report_{number:03}",
            log=log,
            each=each,
            key=key,
            keep=kept,
            where=where,
            what=what,
            when=Repeat(AfterCount(1)),
            how=ACCUMULATING,
        )
        for number, (what, kept, where, key) in enumerate(islice(product(_WHAT, _KEPT, _WINDOWS, _KEYS), count))
    ]


def stream(task: Task) -> Outcome:
    """Fold `number` definitions in epochs of `per_epoch` files; check some of them.

    The seconds are of each epoch. The facts are the seconds of the start, of the stop, and of the whole, the CPU
    seconds of the epochs, and the peak memory of this process before and after the epochs.
    """
    spark, lake = open_session(task.settings), Lake(task.settings)
    made, epochs = definitions(task.number), list[EpochReport]()
    began, spent = time.perf_counter(), cpu_seconds()
    source = Files(str(task.views.folder), "parquet", task.per_epoch)
    stream = Stream(spark, lake, made, source, follow_every=BEHIND, watch=epochs.append)
    started, before, peak = time.perf_counter(), cpu_seconds(), _peak()
    stream.start(once=True)
    stream.wait()
    folded, after = time.perf_counter(), cpu_seconds()
    stream.close()
    ended = time.perf_counter()
    for one in made[:: max(1, len(made) // AUDITED)]:
        found = audit(lake, one)
        if not found.ok:
            raise JobError(f"{one.name}: {[check for check in found.checks if not check.ok]}")
    facts = {
        "start": started - began,
        "start_cpu": before - spent,
        "folded": folded - started,
        "cpu": (after - before) / len(epochs),
        "stop": ended - folded,
        "peak_mb": [peak, _peak()],
    }
    phases = mean_phases([epoch.phases for epoch in epochs[len(epochs) // 2 :]])
    return Outcome([epoch.seconds for epoch in epochs], phases, facts)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def many(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B15: an epoch, the start, a backlog and the stop of 200 definitions in one stream, beside one definition."""
    from benchmarks.cases import Bench

    bench = Bench(plan, "B15", min(events, FILES * VIEWS_A_FILE))
    ways = [(count, per_epoch) for per_epoch in (1, None) for count in (1, COUNT)]
    found = {
        way: [bench.run("many", "stream", way[0], per_epoch=way[1], variant=str(run)) for run in range(plan.runs)]
        for way in ways
    }
    results = []

    def compared(what: str, per_epoch: int | None, took: str | None, limit: float | None) -> None:
        one, all_ = (
            median(steady(each.seconds) if took is None else each.facts[took] for each in found[count, per_epoch])
            for count in (1, COUNT)
        )
        last = found[COUNT, per_epoch][-1]
        facts = {"of_all": last.facts, "of_one": found[1, per_epoch][-1].facts}
        phases = {"ours": last.phases, "theirs": found[1, per_epoch][-1].phases}
        results.append(
            Result("B15", what, bench.views.events, "s", all_, one, plan.runs, limit, phases=phases, facts=facts)
        )

    compared(f"an epoch of {VIEWS_A_FILE:,} into {COUNT} definitions beside one", 1, None, target)
    compared(f"a backlog into {COUNT} definitions beside one", None, "folded", target)
    compared(f"the start of {COUNT} definitions beside one", 1, "start", None)
    compared(f"the stop of {COUNT} definitions beside one", 1, "stop", None)
    return results


if __name__ == "__main__":
    serve({"stream": stream})
