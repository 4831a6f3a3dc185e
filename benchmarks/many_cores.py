"""B13: what more cores give each side, measured up to those of the machine, and fitted beyond (`amdahl`).

Each process is bound to its cores, JVM and DuckDB alike, so that neither side has another's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

from benchmarks.amdahl import Fit, fitted
from benchmarks.cases import SIDES, Bench, Plan, Result, in_turn
from benchmarks.data import VIEWS_A_FILE
from benchmarks.measure import Outcome

BEYOND = (4, 16, 64)
"""The numbers of cores of which the fit is told."""

MANY = 16
"""The number of cores from which the targets are compared with what was measured."""

TWICE, BESIDE_DUCKDB = 2.0, 1.4
"""The targets on `MANY` cores: times as quick as hand-written Spark, and at most so many times DuckDB's seconds."""

LEAST, MOST = 4, 1
"""The sizes: a quarter of the events, and all of them."""

Sides = tuple[str, ...]
_NAMES = {"ours": "ours", "handwritten": "theirs", "duck": "duckdb"}


def numbers_of_cores(there: int) -> list[int]:
    """Return the numbers of cores that are measured on a machine: one, all, and the powers of two between.

    >>> numbers_of_cores(2), numbers_of_cores(12)
    ([1, 2], [1, 2, 4, 8, 12])
    """
    return sorted({there, *(2**power for power in range(there.bit_length()) if 2**power <= there)})


def many_cores(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B13: B1 and B3 on one core to all, of two sizes, with Amdahl's law fitted to each side."""
    there = len(os.sched_getaffinity(0))
    plan.say(
        f"this machine has {there} cores: "
        + (f"the targets of {MANY} are measured" if there >= MANY else f"those of {MANY} and more are fitted")
    )
    results = []
    for divisor in (LEAST, MOST):
        size = max(VIEWS_A_FILE, events // divisor // VIEWS_A_FILE * VIEWS_A_FILE)
        results += [*_backfills(plan, size, there), *_backlogs(plan, size, there)]
    return results


def _backfills(plan: Plan, events: int, there: int) -> list[Result]:
    bench = Bench(plan, "B13", events)
    lakes = bench.landed()
    lakes["duck"] = lakes["handwritten"]

    def job(way: tuple[str, int], number: int) -> Outcome:
        side, cores = way
        return bench.run(side, "batch", number, lake=lakes[side], cores=cores, repeats=plan.repeats)

    found = _measured(plan, (*SIDES, "duck"), there, job)
    bench.close()
    return told(plan, "backfill", events, found)


def _backlogs(plan: Plan, events: int, there: int) -> list[Result]:
    bench = Bench(plan, "B13", events)

    def job(way: tuple[str, int], number: int) -> Outcome:
        side, cores = way
        return bench.run(side, "backlog", number, cores=cores)

    return told(plan, "backlog", events, _measured(plan, SIDES, there, job))


def _measured(
    plan: Plan, sides: Sides, there: int, job: Callable[[tuple[str, int], int], Outcome]
) -> dict[tuple[str, int], list[Outcome]]:
    ways = [(side, cores) for cores in numbers_of_cores(there) for side in sides]
    return in_turn(plan, ways, job)


def told(plan: Plan, what: str, events: int, found: Mapping[tuple[str, int], list[Outcome]]) -> list[Result]:
    """Return what was measured on each number of cores, and what the fits give beyond."""
    took = {way: median(s for one in outcomes for s in one.seconds) for way, outcomes in found.items()}
    sides = list(dict.fromkeys(side for side, _ in took))
    numbers = sorted({cores for _, cores in took})
    fits = {side: fitted({cores: took[side, cores] for cores in numbers}) for side in sides}
    result = partial(Result, events=events, unit="s", runs=plan.runs)
    results = []
    for cores in numbers:
        own = {side: found[side, cores] for side in sides}
        memory = {
            f"{_NAMES[side]}_together": median(one.facts.get("together_mb", 0.0) for one in outcomes)
            for side, outcomes in own.items()
        }
        cpu = {_NAMES[side]: median(one.facts.get("cpu", 0.0) for one in outcomes) for side, outcomes in own.items()}
        seconds = {side: took[side, cores] for side in sides}
        facts = {"cores": cores, "cpu_seconds": cpu, "seconds": seconds, "measured": True}
        results += _compared(result, f"{what}, {_number(cores)}", cores, seconds, facts, memory)
    for cores in (one for one in BEYOND if one > numbers[-1]):
        seconds = {side: fit.seconds(cores) for side, fit in fits.items()}
        facts = {"cores": cores, "seconds": seconds, "measured": False}
        results += _compared(result, f"{what}, {_number(cores)} by the fit", cores, seconds, facts, {}, judged=False)
    shares = {_NAMES[side]: fit.serial_share for side, fit in fits.items()}
    facts = {"fits": {_NAMES[side]: _as_facts(fit) for side, fit in fits.items()}, "measured_on": numbers}
    serial = f"{what}, serial part: " + ", ".join(f"{side} {share:.0%}" for side, share in shares.items())
    errors = [fit.error for fit in fits.values() if fit.error is not None]
    serial += f"; fits are off by {max(errors):.0%} at most" if errors else ""
    ours, theirs = fits["ours"].serial, fits["handwritten"].serial
    results.append(result("B13", serial, ours=max(ours, 1e-3), theirs=max(theirs, 1e-3), facts=facts))
    return results


def _compared(
    result: Callable[..., Result],
    what: str,
    cores: int,
    seconds: Mapping[str, float],
    facts: dict[str, Any],
    memory: dict[str, float],
    *,
    judged: bool = True,
) -> list[Result]:
    """Return our seconds beside those of hand-written Spark and, where it ran, beside DuckDB's into a file."""
    at = judged and cores >= MANY and "duck" in seconds
    ours = seconds["ours"]
    common: dict[str, Any] = {"facts": facts, "memory_mb": memory}
    found = [result("B13", what, ours=ours, theirs=seconds["handwritten"], target=TWICE if at else None, **common)]
    if "duck" in seconds:
        limit = 1 / BESIDE_DUCKDB if at else None
        beside = {name.replace("duckdb", "theirs"): one for name, one in memory.items() if "theirs" not in name}
        common = {"facts": facts, "memory_mb": beside}
        found.append(result("B13", f"{what}, beside DuckDB", ours=ours, theirs=seconds["duck"], target=limit, **common))
    return found


def _as_facts(fit: Fit) -> dict[str, float | None]:
    return {"serial": fit.serial, "shared": fit.shared, "serial_share": fit.serial_share, "error": fit.error}


def _number(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"
