"""Measures Tailrace beside hand-written Spark: `make bench`, or `python benchmarks/run.py --only B2 --runs 1`.

Prints a table and writes `build/bench/results.json`. Each side gives the same rows, checked against a third count of
them, or there is no result. Ratios are from runs in turn, so they say more than the seconds of a shared machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    # Run as a script, the folder `benchmarks` is on the path, and its names are not meant to be modules of their own.
    sys.path[0] = str(ROOT)

from rich.box import SIMPLE  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.cases import CASES, ENGINES, GROWING, LARGE, Plan, Result  # noqa: E402
from benchmarks.compare import DifferentError  # noqa: E402
from benchmarks.measure import JobError  # noqa: E402

FOLDER = ROOT / "build" / "bench"
EVENTS, QUICK = 5_000_000, 1_000_000
NARROWEST = 90
SIZES = (1_000_000, 5_000_000, 20_000_000)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="Tailrace beside hand-written Spark.")
    usual = [name for name in CASES if name not in LARGE]
    parser.add_argument("--only", nargs="+", choices=CASES, default=usual, help="the cases to run")
    parser.add_argument("--runs", type=int, help="runs of each side, in turn (3)")
    parser.add_argument("--events", type=int, help=f"events of each case ({EVENTS:,}), in steps of 50,000")
    parser.add_argument("--sizes", action="store_true", help=f"{' and '.join(GROWING)} also with 1, 5 and 20 M events")
    parser.add_argument("--quick", action="store_true", help="one run with 1 M events: does it work, roughly how fast")
    parser.add_argument("--engine", choices=ENGINES, default="auto", help="what runs our side (auto)")
    parser.add_argument("--memory", default="4g", help="heap of each side (4g)")
    asked = parser.parse_args(given)
    asked.runs = asked.runs or (1 if asked.quick else 3)
    asked.events = asked.events or (QUICK if asked.quick else EVENTS)
    return asked


def main(given: Sequence[str] | None = None) -> int:
    asked = arguments(given)
    started, say, console = time.perf_counter(), Console(stderr=True), Console()
    # Room for each name; a narrower terminal wraps the lines, which can still be read.
    console.width = max(console.width, NARROWEST)
    plan = Plan(
        folder=FOLDER,
        events=asked.events,
        runs=asked.runs,
        repeats=1 if asked.quick else 3,
        memory=asked.memory,
        engine=asked.engine,
        say=lambda text: say.print(f"[dim]{time.perf_counter() - started:6.0f} s  {text}[/dim]", highlight=False),
    )
    results: list[Result] = []
    failed = 0
    for name in asked.only:
        case, targets = CASES[name]
        target = targets.get(asked.engine)
        others = [size for size in SIZES if size != asked.events] if asked.sizes and name in GROWING else []
        for events in sorted([asked.events, *others]):
            try:
                found = case(plan, events, target if events == asked.events else None)
                listed = found if isinstance(found, list) else [found]
                results += [replace(one, engine=asked.engine) for one in listed]
            except (JobError, DifferentError) as error:
                failed += 1
                say.print(f"{name} with {events:,} events has no result: {error}", style="red", markup=False)
            write(results, FOLDER / "results.json")
    console.print(table(results))
    console.print(f"{time.perf_counter() - started:.0f} s in all; details in {FOLDER.relative_to(ROOT)}/results.json")
    return 1 if failed else 0


def write(results: Sequence[Result], file: Path) -> None:
    """The results as JSON, the ratio and whether the target is met among them; those of other runs stay."""
    file.parent.mkdir(parents=True, exist_ok=True)
    ran = {(one.engine, one.name, one.events) for one in results}
    others = [one for one in _before(file) if (one["engine"], one["name"], one["events"]) not in ran]
    listed = [{"ratio": round(one.ratio, 3), "met": one.met, **asdict(one)} for one in results]
    file.write_text(json.dumps([*others, *listed], indent=2) + "\n")


def _before(file: Path) -> list[dict[str, Any]]:
    """Read the results that earlier runs left: of the other engine, of other cases or of other sizes."""
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []
    return [one for one in found if "engine" in one]


def table(results: Sequence[Result]) -> Table:
    """The results for people. A missed target is shown as missed."""
    caption = "seconds; ratio: their time by ours; GB: the most memory of JVM and Python at once, ours and theirs"
    engines = " and ".join(sorted({one.engine for one in results}))
    found = Table(title=f"Tailrace ({engines}) beside hand-written Spark", caption=caption, box=SIMPLE)
    found.add_column("")
    found.add_column("what", ratio=1)
    for column in ("events", "ours", "theirs", "ratio", "target", "GB"):
        found.add_column(column, justify="right", no_wrap=True)
    for one in results:
        met = (
            ""
            if one.target is None
            else f"{one.target:g} [green]met[/green]"
            if one.met
            else f"{one.target:g} [red]missed[/red]"
        )
        sides = [one.memory_mb.get(f"{side}_together") for side in ("ours", "theirs")]
        peaks = ["" if side is None else f"{side / 1024:.1f}" for side in sides]
        found.add_row(
            one.name,
            one.what,
            f"{one.events / 1e6:g} M",
            f"{one.ours:.2f}",
            f"{one.theirs:.2f}",
            f"{one.ratio:.2f}",
            met,
            ", ".join(peaks) if all(peaks) else "",
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
