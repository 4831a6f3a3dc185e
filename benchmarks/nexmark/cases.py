"""Nexmark queries as streams and as backfills, beside hand-written Spark for the same query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.cases import FEW, SIDES, Bench, Plan, Result, in_turn
from benchmarks.compare import DifferentError
from benchmarks.data import VIEWS_A_FILE
from benchmarks.measure import Outcome
from benchmarks.nexmark.answers import Events
from benchmarks.nexmark.events import events as made
from benchmarks.nexmark.events import told_by

ROWS, WINDOWED = ("q0", "q1", "q2"), ("q5", "q7", "q8", "q11")
QUERIES = (*ROWS, *WINDOWED)
STREAM, BATCH = 1.5, 1.0
"""The targets: of streams that tell of windows, and of backfills."""


def nexmark(plan: Plan, events: int, target: float | None) -> list[Result]:
    """Each query: an epoch of one file, and all of a landed log in a warm session; side by side, and in turn."""
    return [*streams(plan, min(events, FEW * VIEWS_A_FILE)), *batches(plan, events)]


def streams(plan: Plan, events: int) -> list[Result]:
    """What an epoch of the second half takes, of each query."""
    bench = Bench(plan, "nexmark-stream", events, made)

    def job(side: str, number: int) -> Outcome:
        found = bench.run(f"nexmark.{side}", "stream", number, per_epoch=1, variant="+".join(QUERIES))
        check(bench, found, told_by(events))
        return found

    found = in_turn(plan, SIDES, job)
    what = f"an epoch of {VIEWS_A_FILE:,} events"
    return [
        _result(f"nexmark {name}", what, events, VIEWS_A_FILE, found, name, STREAM if name in WINDOWED else None)
        for name in QUERIES
    ]


def batches(plan: Plan, events: int) -> list[Result]:
    """A backfill of each query over the landed log, beside read, compute, overwrite."""
    bench = Bench(plan, "nexmark-batch", events, made)
    lakes = {side: bench.folder / f"landed-{side}" for side in SIDES}
    for side, lake in lakes.items():
        bench.run(f"nexmark.{side}", "land", lake=lake)

    def job(side: str, number: int) -> Outcome:
        how = {"repeats": plan.repeats, "variant": "+".join(QUERIES)}
        found = bench.run(f"nexmark.{side}", "batch", number, lake=lakes[side], **how)
        check(bench, found, None)
        return found

    found = in_turn(plan, SIDES, job)
    bench.close()
    what = "backfill over the landed log, warm"
    return [_result(f"nexmark {name}", what, events, events, found, name, BATCH) for name in QUERIES]


def check(bench: Bench, outcome: Outcome, told: datetime | None) -> None:
    """Hold the answers that a job left against plain SQL. Raises `DifferentError`."""
    with Events(bench.views.folder) as truth:
        for name in QUERIES:
            file = Path(outcome.facts["home"]) / f"{name}.parquet"
            # What is told of rows is told of all of them.
            wrong = truth.differing(name, file, told if name in WINDOWED else None)
            if wrong:
                listed = "\n  ".join(wrong)
                raise DifferentError(f"{file} is not what was expected:\n  {listed}")


def _result(
    name: str,
    what: str,
    events: int,
    rows: int,
    found: Mapping[str, Sequence[Outcome]],
    query: str,
    target: float | None,
) -> Result:
    ours, theirs = (median(one.facts["queries"][query] for one in found[side]) for side in SIDES)
    facts = {
        "rows_a_second": {"ours": rows / ours, "theirs": rows / theirs},
        "each": {side: [one.facts["queries"][query] for one in found[side]] for side in SIDES},
        "others_cores": {side: [one.facts["others_cores"] for one in found[side]] for side in SIDES},
    }
    return Result(name, what, events, "s", ours, theirs, len(found["ours"]), target, facts=facts)
