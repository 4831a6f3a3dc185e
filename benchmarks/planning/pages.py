"""The tables of `docs/clusters.md` and `docs/cloud.md` that are the model's, each between two marks of its own."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ROOT
from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.measuring import MEASURED
from benchmarks.planning.model import ENOUGH, PREDICTED, Costs, Error, Row, errors, fit, held_out, undisturbed
from benchmarks.planning.prices import bill, on_machines, told
from benchmarks.planning.sizing import NEAR, Size, sizes

DOCS = ROOT / "docs"
_MANY_FILES = 100_000
"""Files between two maintenances, at most."""


@dataclass(frozen=True)
class Planned:
    """What was measured, and what follows from it."""

    measured: Mapping[str, Any]
    assumed: Assumptions = field(default_factory=Assumptions)

    @classmethod
    def read(cls) -> Planned:
        return cls(json.loads(MEASURED.read_text()))

    @cached_property
    def costs(self) -> Costs:
        return fit(self.measured)

    @cached_property
    def sizes(self) -> list[Size]:
        return sizes(self.costs, self.assumed)

    def sections(self) -> dict[tuple[str, str], str]:
        """The text of each part, by its page and its mark."""
        return {
            ("clusters.md", "sizes"): self.of_sizes(),
            ("clusters.md", "error"): self.of_errors(),
            ("clusters.md", "costs"): self.of_costs(),
            ("clusters.md", "assumed"): self.of_assumptions(),
            ("cloud.md", "billion"): self.of_bills(),
            ("cloud.md", "prices"): self.of_prices(),
        }

    def of_sizes(self) -> str:
        def row(name: str, said: Callable[[Size], str]) -> list[str]:
            return [name, *map(said, self.sizes)]

        mean, height = self.assumed.mean_load, self.assumed.mean_load * (1 + self.assumed.swing)
        return table(
            ["cores of the stream's executors", *(f"{size.setting.cores:,}" for size in self.sizes)],
            [
                row("maximum sustained records a second", lambda size: _short(size.sustained)),
                row(f"records of a day, at {_percent(mean)} of the maximum ({_percent(height)} at the peak)",
                    lambda size: _short(size.day.records)),
                row("`TAILRACE_SHUFFLE_PARTITIONS`", lambda size: f"{size.setting.shuffles:,}"),
                row("partitions of the Kafka topic", lambda size: f"{size.setting.sources:,}"),
                row("`--every`, in seconds", lambda size: f"{size.setting.every:g}" if size.setting.every else "none"),
                row("`--per-epoch`, in records", lambda size: f"{size.per_epoch:,}"),
                row("`TAILRACE_DRIVER_MEMORY`", lambda size: f"{size.driver_memory}g"),
                row("maintenance", lambda size: _often(size)),
                row("length of an epoch, median, s", lambda size: f"{size.day.epoch_p50:.1f}"),
                row("record to ledger, s: median, 95 %",
                    lambda size: f"{size.day.latency_p50:.0f}, {size.day.latency_p95:.0f}"),
                row("answers are updated every, s", lambda size: f"{size.day.seconds / size.day.followings:.0f}"),
                row("tasks of an epoch", lambda size: f"{size.day.tasks / size.day.epochs:,.0f}"),
                row("epochs of a day", lambda size: f"{size.day.epochs:,}"),
                row("catalog commits of a day", lambda size: f"{size.day.commits:,.0f}"),
                row("data files of a day, before maintenance", lambda size: f"{size.day.files:,.0f}"),
                row("data of a day, GB", lambda size: f"{size.day.data_bytes / 1e9:,.0f}"),
                row("metadata written in a day, GB", lambda size: f"{size.day.metadata_bytes / 1e9:,.1f}"),
                row("share of the busy time: driver, executors, storage", _shares),
            ],
        )  # fmt: skip

    def of_errors(self) -> str:
        kinds = [(f"{name}, {len(rows)} streams", rows) for name, rows in (
            ("one and two cores, not fitted", held_out(self.measured, "local")),
            ("two workers of a cluster, not fitted", held_out(self.measured, "cluster")),
            ("one and two cores, fitted", [row for row in self.measured["streams"] if not row["shape"]["held_out"]]),
        )]  # fmt: skip
        heads = {
            "data": "bytes of data",
            "metadata": "bytes of metadata",
            "driver_cpu": "CPU of the driver",
            "executor_cpu": "CPU of the executors",
            "heap": "live data in the driver's heap",
            "seconds": "length",
        }
        rows = []
        for name, each in kinds:
            off = errors(self.costs, each)
            rows.append([name, *(_off(off.get(one)) for one in PREDICTED)])
        header = ["error for an epoch: median, maximum", *(heads.get(one, one) for one in PREDICTED)]
        streams = self.measured["streams"]
        busy, waited = (median(row[name] for row in streams) for name in ("others_cores", "waiting"))
        records, tasks = (max(one) for one in zip(*((r["shape"]["records"], r["tasks"]) for r in streams), strict=True))
        last = self.sizes[-1]
        note = (
            f"Each stream was measured {_times(self.measured['times'])}, on {self.measured['measured']}, on two "
            f"cores. Other programs used {busy:.1f} of the cores, so threads waited for a core {_percent(waited)} of "
            f"the time. "
            f"{self._of_lengths(streams)}The largest measured epoch has {_short(records)} records, and the maximum "
            f"number of tasks is {tasks:,.0f}; at {last.setting.cores:,} cores the table extrapolates to "
            f"{_short(last.day.largest)} records and {last.day.tasks / last.day.epochs:,.0f} tasks."
        )
        return f"{table(header, rows)}\n\n{_wrapped(note)}"

    def _of_lengths(self, streams: Sequence[Row]) -> str:
        if sum(map(undisturbed, streams)) >= ENOUGH:
            return ""
        return (
            "Such measurements do not show the length of an epoch on an idle machine, so the model fits no length: it "
            "counts a CPU second of the driver, or of the busiest core, as a second. "
        )

    def of_costs(self) -> str:
        costs = self.costs
        rows = [
            ["an epoch, however large", _each(costs.driver_epoch, 1, "s", 2), ""],
            ["a task", _each(costs.driver_task, 1e-3, "ms"), _each(costs.executor_task, 1e-3, "ms")],
            ["a data file", _each(costs.driver_file, 1e-3, "ms"), _each(costs.executor_file, 1e-3, "ms")],
            ["a record", "", _each(costs.executor_record, 1e-6, "µs")],
            ["a touched window", "", _each(costs.executor_touched, 1e-6, "µs")],
            ["an open window", "", _each(costs.executor_open, 1e-6, "µs")],
            ["an update of the answers", _each(costs.driver_follow, 1, "s", 2), ""],
            ["an answer in the rewritten files", _each(costs.driver_followed_row, 1e-6, "µs"), ""],
            ["a snapshot of the table, at each commit", _each(costs.commit_snapshot, 1e-3, "ms", 2), ""],
            ["maintenance of a file", "", _each(costs.maintain_file, 1e-3, "ms")],
            ["maintenance of a record", "", _each(costs.maintain_record, 1e-6, "µs")],
        ]
        lasts = (
            f"It lasts {costs.seconds_epoch:.2f} s, plus {costs.seconds_of_driver:.2f} times the driver's CPU seconds "
            f"and {costs.seconds_of_executor:.2f} times the CPU seconds of the busiest core. "
        )
        note = (
            f"An epoch has {costs.tasks_of_source:.1f} tasks for each partition of the source, "
            f"{costs.tasks_of_shuffle:.1f} for each part of a shuffle and {costs.tasks_fixed:.0f} more. "
            f"{lasts if costs.seconds_epoch else ''}Spark's driver keeps "
            f"{costs.heap_epoch / 1e6:.1f} MB for each epoch and {costs.heap_task / 1e3:.1f} kB for each task in its "
            f"history. A record of three columns takes {costs.log_bytes:.0f} bytes in the log, and a touched window "
            f"takes {costs.ledger_bytes:.0f} bytes in the ledger. Each file takes {costs.file_bytes / 1e3:.1f} kB more."
        )
        return f"{table(['CPU time of', 'driver', 'executors'], rows)}\n\n{_wrapped(note)}"

    def of_assumptions(self) -> str:
        one = self.assumed
        assumed = (
            f"These values are assumed, not measured. A request to S3 or Glue takes {one.round_trip * 1e3:.0f} ms, "
            f"and a commit to the catalog waits for {one.trips_of_commit} requests. A task waits {one.task_write:g} s "
            f"for its file. There are {one.keys_of_core:,} keys for each core, and windows of {one.window / 60:.0f} "
            f"minutes, two of which are open for each key. For each core, executors hold "
            f"{one.most_records_of_core:,} records of an epoch."
        )
        chosen = (
            f"The chosen settings have 95 % of the records in the ledger within {one.longest:.0f} s. Among such "
            f"settings, they have the fewest tasks of those within {_percent(1 - NEAR)} of the maximum records a "
            "second."
        )
        return f"{_wrapped(assumed)}\n\n{_wrapped(chosen)}"

    def of_bills(self) -> str:
        bills = [(size, bill(size, self.assumed)) for size in self.sizes]
        names = {
            "compute": "EMR Serverless, the stream", "maintenance": "EMR Serverless, maintenance",
            "storage": f"S3, {self.assumed.months:g} month of the tables", "requests": "requests to S3 and Glue",
            "kafka": "MSK Express, retention of a day",
        }  # fmt: skip
        rows = [
            [said, *(f"{getattr(one, name):.2f} ({_percent(getattr(one, name) / one.together)})" for _, one in bills)]
            for name, said in names.items()
        ]
        rows.append(["**together**", *(f"**{one.together:.2f}**" for _, one in bills)])
        rows.append(
            [
                "the stream on EC2 and EKS in place of EMR",
                *(f"{on_machines(size, self.assumed):.2f}" for size in self.sizes),
            ]
        )
        rows.append(["billion records a day", *(f"{size.day.records / 1e9:,.1f}" for size, _ in bills)])
        rows.append(["US dollars a day", *(f"{one.together * size.day.records / 1e9:,.0f}" for size, one in bills)])
        return table(["cores", *(f"{size.setting.cores:,}" for size, _ in bills)], rows)

    def of_prices(self) -> str:
        rows = [
            [one["unit"], f"{one['price']:.10f}".rstrip("0"), one["page"], one["date"], one["from"]]
            for one in told()["prices"].values()
        ]
        return table(["for", "USD", "price list", "as of", "our source"], rows)


def written(planned: Planned, docs: Path = DOCS) -> list[Path]:
    """Put the parts into their pages; gives the pages that changed."""
    changed = []
    for (page, mark), text in planned.sections().items():
        file = docs / page
        before = file.read_text()
        start, end = marks(mark)
        if before.count(start) != 1 or before.count(end) != 1:
            raise ValueError(f"{page}: expected one {start} and one {end}")
        after = f"{before.split(start)[0]}{start}\n\n{text}\n\n{end}{before.split(end)[1]}"
        if after != before:
            file.write_text(after)
            changed.append(file)
    return list(dict.fromkeys(changed))


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a part.

    >>> marks("sizes")
    ('<!-- planning: sizes -->', '<!-- /planning: sizes -->')
    """
    return f"<!-- planning: {name} -->", f"<!-- /planning: {name} -->"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(one)} |".replace("|  |", "| |") for one in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def _off(error: Error | None) -> str:
    return "–" if error is None else f"{_percent(error.median)}, {_percent(error.worst)}"


def _percent(part: float) -> str:
    """A part of a hundred.

    >>> _percent(0.254)
    '25 %'
    """
    return f"{100 * part:.0f} %"


def _wrapped(text: str) -> str:
    # A number and its unit stay on a line.
    kept = re.sub(r"(\d) (%|[a-zµA-Z]{1,2}\b)", "\\1\u00a0\\2", text)
    return textwrap.fill(kept, 120, break_on_hyphens=False, break_long_words=False).replace("\u00a0", " ")


def _short(number: float) -> str:
    """A number to two digits.

    >>> _short(1_234_567), _short(45_600_000_000), _short(2_800_600_000_000), _short(87_000)
    ('1.2 M', '46 billion', '2,800 billion', '87,000')
    """
    rounded = float(f"{number:.2g}")
    for size, name in ((1e9, "billion"), (1e6, "M")):
        if rounded >= size:
            return f"{rounded / size:.1f} {name}" if rounded < 10 * size else f"{rounded / size:,.0f} {name}"
    return f"{rounded:,.0f}"


def _each(seconds: float, unit: float, name: str, digits: int = 1) -> str:
    """A cost in a unit; a dash for one that measurements do not tell from the others."""
    return f"{seconds / unit:.{digits}f} {name}" if seconds else "–"


def _often(size: Size) -> str:
    """How often maintenance has to come so that there are not too many files between two."""
    hours = 24 * _MANY_FILES / size.day.files
    return "daily" if hours >= 24 else f"every {int(hours)} hours" if hours >= 2 else "hourly"


def _shares(size: Size) -> str:
    busy = {name: seconds for name, seconds in size.day.busy.items() if name != "records"}
    whole = sum(busy.values())
    return ", ".join(f"{_percent(busy[name] / whole)}" for name in ("driver", "executors", "storage"))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times, of which the one with less CPU time counts"


__all__ = ["Planned", "marks", "table", "written"]
