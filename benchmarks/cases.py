"""The cases B1 to B16, Nexmark and Photon: which jobs are run in turn, and what of them is compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data, measure
from benchmarks.compare import expected, same
from benchmarks.data import VIEWS_A_FILE
from benchmarks.measure import Outcome, Task

Way = TypeVar("Way", bound=Hashable)
"""Who does it and how, where that differs from run to run."""

SIDES = ("ours", "handwritten")
WARM_UP_FILES = 8
BLOCK = 10
"""Epochs over which an epoch's time is averaged: table `p` may follow every tenth only, and that counts."""


@dataclass(frozen=True)
class Plan:
    """What a whole run of the benchmarks was asked for."""

    folder: Path
    events: int
    runs: int
    repeats: int = 3
    memory: str = "4g"
    engine: str = "auto"
    say: Callable[[str], None] = print


@dataclass(frozen=True)
class Result:
    """One comparison, in `unit`: medians over the runs. `ratio` is their time by ours; above 1 we are faster."""

    name: str
    what: str
    events: int
    unit: str
    ours: float
    theirs: float
    runs: int
    target: float | None = None
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    engine: str = "auto"

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.ratio >= self.target


class Bench:
    """The jobs of one set of views, run in turn in folders of their own, and checked to give the right answers."""

    def __init__(self, plan: Plan, name: str, events: int, made: Callable[..., data.Views] = data.views) -> None:
        self.plan, self.name = plan, name
        self.views = made(plan.folder / "data", events)
        self.warm_up = made(plan.folder / "data", WARM_UP_FILES * VIEWS_A_FILE, data.WARM_UP_SEED)
        self.folder = plan.folder / "runs" / f"{name}-{plan.engine}-{self.views.files}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self._truth: pa.Table | None = None

    def run(self, side: str, job: str, number: int = 0, *, lake: Path | None = None, **how: Any) -> Outcome:
        """One job of one side, in a process of its own, with its answers checked."""
        label = "-".join([side, job, str(number), *(f"{name}_{value}" for name, value in how.items())])
        home = self.folder / label
        how |= {"number": number, "memory": self.plan.memory, "engine": self.plan.engine}
        task = Task(job, home, lake or home / "lake", self.views, self.warm_up, **how)
        self.plan.say(f"{self.name} {self.views.events:,} events: {label}")
        outcome = measure.run(side, task)
        outcome.facts["home"] = str(home)
        if task.answers.is_file():
            self._truth = expected(self.views.folder) if self._truth is None else self._truth
            outcome.facts["rows"] = same([task.answers], self._truth)
        if outcome.facts.get("landed", self.views.events) not in (0, self.views.events):
            raise measure.JobError(f"{label}: {outcome.facts['landed']} views landed of {self.views.events}")
        if lake is None and job != "land":
            shutil.rmtree(task.lake, ignore_errors=True)
        return outcome

    def landed(self) -> dict[str, Path]:
        """For each side a lake with the views in its log."""
        lakes = {side: self.folder / f"landed-{side}" for side in SIDES}
        for side, lake in lakes.items():
            self.run(side, "land", lake=lake)
        return lakes

    def close(self) -> None:
        """Remove the lakes; what the jobs said stays."""
        for lake in self.folder.glob("landed-*"):
            shutil.rmtree(lake)


def batch(plan: Plan, events: int, target: float | None) -> Result:
    """B1: a whole backfill over the landed log beside read, aggregate, overwrite; both in a warm session."""
    bench = Bench(plan, "B1", events)
    lakes = bench.landed()
    found = in_turn(plan, SIDES, lambda side, n: bench.run(side, "batch", n, lake=lakes[side], repeats=plan.repeats))
    duck = bench.run("duck", "batch", lake=lakes["handwritten"], repeats=plan.repeats)
    bench.close()
    seconds = {side: median(s for one in found[side] for s in one.seconds) for side in SIDES}
    again = median(one.facts["again"] for one in found["ours"])
    facts = {"ours_again_all_equal": again, "duckdb_into_a_file": median(duck.seconds)}
    return _result(bench, found, seconds, target, what="backfill over the landed log, warm", unit="s", facts=facts)


def stream(plan: Plan, events: int, target: float | None) -> Result:
    """B2: micro-batches of one file; what an epoch of the second half takes from its trigger to the next."""
    bench = Bench(plan, "B2", events)
    found = in_turn(plan, SIDES, lambda side, n: bench.run(side, "stream", n, per_epoch=1))
    others = {way: bench.run("handwritten", "stream", per_epoch=1, variant=way) for way in ("no_log", "adding")}
    seconds = {side: median(steady(one.seconds) for one in found[side]) for side in SIDES}
    medians = {side: median(median(_second_half(one.seconds)) for one in found[side]) for side in SIDES}
    facts = {
        "median_epoch": medians,
        "theirs_otherwise": {way: steady(one.seconds) for way, one in others.items()},
        "all_epochs": {side: median(one.facts["total"] for one in found[side]) for side in SIDES},
    }
    what = f"an epoch of {VIEWS_A_FILE:,} events"
    return _result(bench, found, seconds, target, what=what, unit="s", facts=facts)


def backlog(plan: Plan, events: int, target: float | None) -> Result:
    """B3: everything as a backlog; each side in the epochs that suit it best of those tried."""
    bench = Bench(plan, "B3", events)
    tried = (None, 25) if bench.views.files > 25 else (None,)
    ways = [(side, epochs) for epochs in tried for side in SIDES]
    found = in_turn(plan, ways, lambda way, n: bench.run(way[0], "backlog", n, per_epoch=way[1]))
    took = {way: median(one.seconds[0] for one in outcomes) for way, outcomes in found.items()}
    best = {side: min((way for way in took if way[0] == side), key=took.__getitem__) for side in SIDES}
    facts = {"tried": {f"{side}, {epochs or 'all'} files an epoch": took[side, epochs] for side, epochs in ways}}
    return _result(
        bench,
        {side: found[way] for side, way in best.items()},
        {side: took[way] for side, way in best.items()},
        target,
        what="a backlog landed, folded, merged",
        unit="s",
        facts=facts,
    )


def intervals(plan: Plan, events: int, target: float | None) -> Result:
    """B4: every interval backfilled, in one session of ours (its start counts) beside a spark-submit for each.

    Theirs takes minutes and is many processes already: it is run for every third run of ours.
    """
    bench = Bench(plan, "B4", events)
    lakes = bench.landed()
    found: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    for number in range(plan.runs):
        found["ours"].append(bench.run("ours", "intervals", number, lake=lakes["ours"]))
        if number % 3 == 0:
            found["handwritten"].append(bench.run("handwritten", "intervals", number, lake=lakes["handwritten"]))
    bench.close()
    seconds = {side: median(sum(one.seconds) for one in found[side]) for side in SIDES}
    facts = {
        "ours_start": median(one.facts["start"] for one in found["ours"]),
        "ours_an_interval": median(s for one in found["ours"] for s in one.seconds[1:]),
        "theirs_an_interval": median(s for one in found["handwritten"] for s in one.seconds),
        "ours_in_one_run": median(one.facts["start"] + one.facts["one_run"] for one in found["ours"]),
        "runs_of_theirs": len(found["handwritten"]),
    }
    what = f"{len(list(bench.views.intervals()))} intervals with start-up"
    return _result(bench, found, seconds, target, what=what, unit="s", facts=facts)


KINDS = {
    "sliding": ("sliding windows, 4 to a record, beside fixed ones", 0.7),
    "sessions": ("sessions beside fixed windows", 0.6),
    "stages": ("two stages with retractions beside one", 0.6),
    "python": ("the python execution beside the native one", 0.2),
    "python_by_batch": ("windows of one's own, assigned by arrays", 0.8),
    "own": ("a combiner of one's own, record by record", 0.3),
    "own_by_batch": ("the same combiner, over the values of all windows at once", 0.8),
    "step_traced": ("a custom step that is compiled to SQL, beside an expression", 0.9),
    "step_by_batch": ("a custom step by the batch, beside an expression", 0.8),
    "step_by_record": ("a step of one's own, record by record, beside an expression", 0.3),
}
"""What is compared with native fixed windows, and the target of each."""
BESIDE = {name: "step" for name in KINDS if name.startswith("step_")}
"""What is compared with the same windows after a native step instead."""
FEW = 30
"""Files that each kind is streamed."""
REFERENCE = 50_000
"""Records a second that the reference execution should fold at least."""


def kinds(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B5: an epoch of each kind of definition beside one of native fixed windows, in one session of ours."""
    bench = Bench(plan, "B5", min(events, FEW * VIEWS_A_FILE))
    found = [bench.run("kinds", "compared", number) for number in range(plan.runs)]
    took = {name: median(one.facts["kinds"][name] for one in found) for name in ("fixed", "step", *KINDS)}
    facts = {"cpu_seconds": {}, "each": [one.facts["kinds"] for one in found]}
    common: dict[str, Any] = {"events": bench.views.events, "unit": "s", "runs": plan.runs, "facts": facts}
    results = [
        Result(f"B5 {name}", what, ours=took[name], theirs=took[BESIDE.get(name, "fixed")], target=wanted, **common)
        for name, (what, wanted) in KINDS.items()
    ]
    rate = median(one.facts["reference"] for one in found)
    what = f"the reference, records a second beside {REFERENCE:,}"
    common |= {"unit": "us a record"}
    results.append(Result("B5 reference", what, ours=1e6 / rate, theirs=1e6 / REFERENCE, target=1.0, **common))
    return results


def visits(plan: Plan, events: int, target: float | None) -> Result:
    """B6: sessions beside hand-written `session_window`; what an epoch of the second half takes."""
    from benchmarks.visits import FILE, same_sessions

    # On Spark all of them, as its code is compiled for the first two million.
    bench = Bench(plan, "B6", events if plan.engine == "spark" else min(events, FEW * VIEWS_A_FILE))
    found: dict[str, list[Outcome]] = {side: [] for side in SIDES}
    rows = 0
    for number in range(plan.runs):
        for side in SIDES:
            found[side].append(bench.run("visits", side, number, per_epoch=1))
        ours, theirs = (pq.read_table(bench.folder / f"visits-{side}-{number}-per_epoch_1" / FILE) for side in SIDES)
        rows = same_sessions(ours, theirs, bench.views.end)
    seconds = {side: median(steady(one.seconds) for one in found[side]) for side in SIDES}
    what = f"sessions, an epoch of {VIEWS_A_FILE:,} events"
    return _result(bench, found, seconds, target, what=what, unit="s", facts={"sessions": rows})


def orders(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B14: nested orders of 1 kB in JSON, their five items exploded and summed as doubles: a backlog, and epochs."""
    from benchmarks.orders import FILE, same_sales

    few = min(events, FEW * VIEWS_A_FILE)
    limits = {} if plan.engine == "spark" else {"backlog": 2.0, "stream": 4.0}
    results = []
    for way, count, tried in (("backlog", min(events, BACKLOG), (None, TOGETHER)), ("stream", few, (1,))):
        bench = Bench(plan, "B14", count, data.orders)
        ways = [(side, epochs) for epochs in tried for side in SIDES]
        job = partial(_sell, bench, way)
        found = in_turn(plan, ways, job)
        took = {one: median(steady(each.seconds) for each in outcomes) for one, outcomes in found.items()}
        best = {side: min((one for one in took if one[0] == side), key=took.__getitem__) for side in SIDES}
        rows = same_sales(*(Path(found[best[side]][-1].facts["home"]) / FILE for side in SIDES))
        facts = {
            "sales": rows,
            "tried": {f"{side}, {epochs or 'all'} files": took[side, epochs] for side, epochs in ways},
        }
        what = "nested orders, a backlog" if way == "backlog" else f"nested orders, an epoch of {VIEWS_A_FILE:,}"
        outcomes = {side: found[one] for side, one in best.items()}
        seconds = {side: took[one] for side, one in best.items()}
        results.append(_result(bench, outcomes, seconds, limits.get(way), what=what, unit="s", facts=facts))
    return results


def _sell(bench: Bench, job: str, way: tuple[str, int | None], number: int) -> Outcome:
    side, files = way
    return bench.run("orders", f"{side}_{job}", number, per_epoch=files)


BACKLOG, TOGETHER = 2_000_000, 10
"""Orders of the backlog, and files of one of its epochs where it is not taken at once."""


def latencies(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B7: from a record's file to the ledger at 5,000 a second, and to table `p` that is brought up each epoch."""
    bench = Bench(plan, "B7", VIEWS_A_FILE)
    ours = bench.run("guarantees", "latency")
    fresh = bench.run("guarantees", "latency", variant="fresh")
    theirs = bench.run("guarantees", "latency_handwritten")
    found = []
    for name, one in (("to the ledger", ours), ("to p, each epoch", fresh)):
        for what, share, wanted in (("median", 0.5, 0.8), ("95 %", 0.95, 1.5)):
            own, other = (_quantile(side.seconds, share) for side in (one, theirs))
            facts = {"wanted_seconds": wanted, "epochs": one.facts["epochs"], "their_epochs": theirs.facts["epochs"]}
            # In the process, to the ledger the target is in seconds; to `p` it is twice as quick as theirs.
            limit = None if plan.engine == "spark" else other / wanted if one is ours else 2.0
            found.append(Result(f"B7 {name}", what, one.facts["records"], "s", own, other, 1, limit, facts=facts))
    return found


def _quantile(seconds: Sequence[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def dedup(plan: Plan, events: int, target: float | None) -> Result:
    """B8: an epoch with records known by their ids beside one without."""
    bench = Bench(plan, "B8", min(events, FEW * VIEWS_A_FILE))
    found = [bench.run("guarantees", "dedup", number) for number in range(plan.runs)]
    on = median(fmean(one.seconds) for one in found)
    off = median(fmean(one.facts["off"]) for one in found)
    what = "ids remembered, beside none"
    return Result("B8", what, bench.views.events, "s", on, off, plan.runs, target)


def growth(plan: Plan, events: int, target: float | None) -> Result:
    """B9: an epoch that touches 10,000 windows with 10 M open beside one with 100,000 open."""
    bench = Bench(plan, "B9", VIEWS_A_FILE)
    found = [bench.run("guarantees", "growth", number) for number in range(plan.runs)]
    took = {size: median(one.facts["open"][size] for one in found) for size in found[0].facts["open"]}
    fewest, *_, most = took.values()
    what = "an epoch with 10 M open windows, 100 k"
    return Result("B9", what, 10_000_000, "s", most, fewest, plan.runs, target, facts={"open": took})


def growth_on_workers(plan: Plan, events: int, target: float | None) -> Result:
    """B12: an epoch that touches 10,000 windows with 30 M open, on two workers with 4 GB each; Spark's alone."""
    bench = Bench(replace(plan, engine="spark"), "B12", VIEWS_A_FILE)
    found = [bench.run("guarantees", "growth_on_workers", number) for number in range(plan.runs)]
    most = median(one.seconds[0] for one in found)
    longest = median(max(one.facts["longest"].values()) for one in found)
    what = "an epoch with 30 M open windows on two workers, and the longest"
    facts = {"executors": found[0].facts["executors"]}
    return Result("B12", what, 30_000_000, "s", most, longest, plan.runs, target, facts=facts)


def beside(plan: Plan, events: int, target: float | None) -> Result:
    """B10: the p95 of a stream's epochs with 30 backfills beside, and without."""
    bench = Bench(plan, "B10", events)
    found = [bench.run("guarantees", "beside", number, per_epoch=1) for number in range(plan.runs)]
    during, alone = (median(values) for values in zip(*((o.seconds[0], o.facts["alone"]) for o in found), strict=True))
    what = "p95 of epochs with 30 backfills beside"
    return Result("B10", what, bench.views.events, "s", during, alone, plan.runs, target)


def cores(plan: Plan, events: int, target: float | None) -> list[Result]:
    """B11: the same with two cores beside one: a backfill, and epochs of one file and of ten."""
    bench = Bench(plan, "B11", events)
    lake = bench.folder / "landed-ours"
    bench.run("ours", "land", lake=lake)
    jobs: dict[str, Callable[[int, int], Outcome]] = {
        "a backfill": lambda cores, n: bench.run("ours", "batch", 2 * n + cores, lake=lake, cores=cores),
        f"an epoch of {VIEWS_A_FILE:,}": lambda cores, n: bench.run("ours", "stream", n, cores=cores, per_epoch=1),
        f"an epoch of {10 * VIEWS_A_FILE:,}": lambda cores, n: bench.run(
            "ours", "stream", n, cores=cores, per_epoch=10
        ),
    }
    results = []
    for what, job in jobs.items():
        found = in_turn(plan, (1, 2), job)
        one, two = (median(steady(each.seconds) for each in found[count]) for count in (1, 2))
        results.append(Result("B11", f"{what}, two cores beside one", events, "s", two, one, plan.runs))
    bench.close()
    return results


def _of(module: str, name: str) -> Callable[[Plan, int, float | None], list[Result]]:
    """The cases of another module, which is built on this one."""
    return lambda *given: getattr(import_module(f"benchmarks.{module}"), name)(*given)


ENGINES = ("auto", "duckdb", "spark")

Targets = Mapping[str, float]


def _targets(small: float, spark: float | None = None) -> Targets:
    """The targets of a case by our engine; what fits this machine is DuckDB's by itself."""
    return {"auto": small, "duckdb": small} | ({} if spark is None else {"spark": spark})


CASES: dict[str, tuple[Callable[[Plan, int, float | None], Result | list[Result]], Targets]] = {
    "B1": (batch, _targets(1.5, 1.0)),
    "B2": (stream, _targets(3.5, 1.5)),
    "B3": (backlog, _targets(2.0, 1.0)),
    "B4": (intervals, _targets(15.0, 5.0)),
    "B5": (kinds, {}),
    "B6": (visits, _targets(1.5, 1.0)),
    "B7": (latencies, {}),
    "B8": (dedup, _targets(0.7)),
    "B9": (growth, _targets(1 / 3, 0.2)),
    "B10": (beside, _targets(1 / 1.5, 1 / 1.5)),
    "B11": (cores, {}),
    "B12": (growth_on_workers, {}),
    "B13": (_of("many_cores", "many_cores"), {}),
    "B14": (orders, {}),
    "B15": (_of("many", "many"), _targets(1 / 20)),
    "B16": (_of("bounded", "bounded"), {}),
    "nexmark": (_of("nexmark.cases", "nexmark"), {}),
    "photon": (_of("photon", "photon"), {}),
}
"""Each case with its targets."""

LARGE = ("B12", "B13", "B16")
"""The cases that are only run where they are asked for: B12 needs 12 GB of memory, and each takes half an hour."""

GROWING = ("B1", "B3")
"""The cases that are also run at other sizes."""


def steady(seconds: Sequence[float]) -> float:
    """What an epoch takes once warm: of the second half, the median over blocks of ten epochs of their mean.

    >>> steady([9.0] * 20 + [1.0] * 9 + [3.0] + [1.0] * 9 + [3.0])
    1.2
    """
    half = _second_half(seconds)
    blocks = [half[place : place + BLOCK] for place in range(0, len(half), BLOCK)]
    whole = [block for block in blocks if len(block) == BLOCK] or [half]
    return median(fmean(block) for block in whole)


def _second_half(seconds: Sequence[float]) -> Sequence[float]:
    return seconds[len(seconds) // 2 :]


def in_turn(plan: Plan, ways: Sequence[Way], job: Callable[[Way, int], Outcome]) -> dict[Way, list[Outcome]]:
    """Each way once, then each once more, so that a slow hour of the machine is everyone's."""
    found: dict[Way, list[Outcome]] = {way: [] for way in ways}
    for number in range(plan.runs):
        for way in ways:
            found[way].append(job(way, number))
    return found


def _result(
    bench: Bench,
    found: dict[str, list[Outcome]],
    seconds: dict[str, float],
    target: float | None,
    *,
    what: str,
    unit: str,
    facts: dict[str, Any],
) -> Result:
    names = dict(zip(SIDES, ("ours", "theirs"), strict=True))
    memory = {f"{names[side]}_{peak}": _median_of(found[side], f"{peak}_mb") for side in SIDES for peak in _PEAKS}
    cpu = {names[side]: _median_of(found[side], "cpu") for side in SIDES}
    each = {names[side]: [one.seconds for one in found[side]] for side in SIDES}
    others = {names[side]: [one.facts["others_cores"] for one in found[side]] for side in SIDES}
    common = {"rows": found["ours"][0].facts["rows"], "cpu_seconds": cpu, "others_cores": others, "each": each}
    phases = {
        names[side]: {phase: median(one.phases[phase] for one in found[side]) for phase in found[side][0].phases}
        for side in SIDES
    }
    return Result(
        name=bench.name,
        what=what,
        events=bench.views.events,
        unit=unit,
        ours=seconds["ours"],
        theirs=seconds["handwritten"],
        runs=len(found["ours"]),
        target=target,
        phases=phases,
        memory_mb=memory,
        facts=facts | common,
    )


_PEAKS = ("together", "jvm_rss", "python_rss", "heap_peak", "heap_after_gc")


def _median_of(outcomes: Iterable[Outcome], fact: str) -> float:
    return round(float(median(one.facts.get(fact, 0.0) for one in outcomes)), 2)
