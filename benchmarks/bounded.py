"""B16: 100 M records backfilled, and caught up as a backlog, within 2 GB of memory in the process."""

from __future__ import annotations

from statistics import median

from benchmarks.cases import Bench, Plan, Result

MOST_MB = 2000.0
"""The memory of the process at most."""

ROOM = {"batch": "1GB", "backlog": "700MB"}
"""`TAILRACE_MEMORY` of each job: a stream holds records besides."""

WHAT = {"batch": "a backfill", "backlog": "a backlog caught up"}

LARGEST_EPOCH = 25
"""Files of an epoch of the backlog."""


def bounded(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B16: the peak of resident memory of our side's Python, in MB, beside what it may take; the JVM's is in the facts.

    The bound is told with `--events 100000000`, which takes a quarter of an hour.
    """
    bench = Bench(plan, "B16", events)
    lake = bench.folder / "landed-ours"
    bench.run("ours", "land", lake=lake)
    found = {
        "batch": [bench.run("ours", "batch", n, lake=lake, room=ROOM["batch"]) for n in range(plan.runs)],
        "backlog": [
            bench.run("ours", "backlog", n, room=ROOM["backlog"], per_epoch=LARGEST_EPOCH) for n in range(plan.runs)
        ],
    }
    bench.close()
    results = []
    for job, outcomes in found.items():
        peak = median(one.facts["python_rss_mb"] for one in outcomes)
        facts = {"jvm_rss_mb": median(one.facts.get("jvm_rss_mb", 0.0) for one in outcomes), "room": ROOM[job]}
        facts |= {"seconds": [one.seconds for one in outcomes]}
        what = f"{WHAT[job]}, MB of the process beside {MOST_MB:,.0f}"
        results.append(Result("B16", what, events, "MB", peak, MOST_MB, plan.runs, 1.0, facts=facts))
    return results
