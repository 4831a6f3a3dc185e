"""Maintain the table of runs: each run has a generation, and a range of event time that the run computes (V2, V4)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tailrace.lake.catalog.events import RunRecorded
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Tables
from tailrace.lake.schema.contracts import runs_contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import runs_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.definition import Definition

HIGHEST = "generation"
"""The name of the property in which the table of runs records the highest generation that was assigned so far.

Each commit of the table has this property.
"""


def runs_named(lake: Tables, name: str) -> list[Run]:
    """List the runs of the definition called `name` in the order of generations; each run is read from its latest
    row.
    """
    _, rows = lake.rows(runs_name(name))
    latest: dict[str, Run] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        latest[row["run"]] = _run(row)
    return sorted(latest.values(), key=lambda run: (run.generation, run.run))


def recorded_runs(lake: Lake, name: str) -> list[Run]:
    """List the runs of the definition called `name`, like `runs_named`; there are none without a table of runs."""
    return runs_named(lake, name) if lake.has(runs_name(name)) else []


def committed_backfills(lake: Lake, name: str) -> list[Run]:
    """List the committed backfills of the definition called `name`, in the order of generations."""
    return [run for run in recorded_runs(lake, name) if run.kind == "backfill" and run.status == "committed"]


BACK = "back to generation"
"""The text with which a rollback's reason begins; a rollback makes an earlier generation current again."""


def restored_generation(reason: str | None) -> int:
    """Return the generation that a rollback restored, read from the rollback's reason; return 0 for any other reason.

    >>> restored_generation("back to generation 12: a fault"), restored_generation(None)
    (12, 0)
    """
    found = re.match(rf"{BACK} (\d+)", reason or "")
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Runs:
    """The table of a definition's runs."""

    lake: Tables
    pipeline: Definition

    @property
    def table(self) -> str:
        return runs_name(self.pipeline.name)

    def all(self) -> list[Run]:
        """List all runs of the definition in the order of generations; each run is read from its latest row."""
        return runs_named(self.lake, self.pipeline.name)

    def start(
        self, kind: str, first: int, last: int, *, log_epoch: int | None, reason: str | None = None,
        engine: str | None = None, inputs: str | None = None,
    ) -> Run:  # fmt: skip
        """Add a new run to the table, with a generation above the generations of all other runs.

        Runs that start at the same time get different generations (rule V2).
        """
        self.lake.ensure(runs_contract(self.pipeline))
        # Every run reads the table of runs and adds at least two rows to it, each in a new file. The small files are
        # merged before the new run is added, because a merge that fails after the run's commit would make the run fail.
        self.lake.gather(self.table)
        draft = Run(uuid.uuid4().hex[:12], kind, "started", 0, first, last, self.pipeline.fingerprint, log_epoch)
        return self.renew(replace(draft, reason=reason, engine=engine, inputs=inputs))

    def renew(self, run: Run) -> Run:
        """Give a run a new generation, higher than all generations so far, in a new row of the table of runs."""
        return self._entered(run, renew=True)

    def note(self, run: Run, **changes: Any) -> Run:
        """Add a row to the table with a run's new state; `changes` are the changed fields."""
        return self._entered(replace(run, **changes), renew=False)

    def _entered(self, run: Run, *, renew: bool) -> Run:
        while True:
            expected, highest = self._highest()
            if renew:
                run = replace(run, generation=highest + 1)
            run = replace(run, at=_after(run.at))
            try:
                properties = {HIGHEST: str(max(highest, run.generation))}
                self.lake.enter(self.table, [_row(run)], properties, expected)
            except MovedError:
                continue
            self.lake.tell(RunRecorded(self.pipeline.name, run))
            return run

    def _highest(self) -> tuple[int | None, int]:
        """Return the current snapshot of the table of runs, and the highest generation in this table."""
        head = self.lake.head(self.table)
        if HIGHEST in head.properties:
            return head.snapshot, head.number(HIGHEST)
        expected, rows = self.lake.rows(self.table)
        return expected, max((row["generation"] for row in rows), default=0)

    def give_way(self, run: Run, above: Run) -> Run:
        """Record that `run` changed nothing because `above`, a run of a higher generation, covers the range of
        `run`.
        """
        note = f"generation {above.generation} (run {above.run}) covers the range"
        return self.note(run, status="gave_way", reason=note)

    def record_failure(self, run: Run, error: BaseException) -> Run:
        """Record that a run failed, with the first line of the error's message."""
        return self.note(run, status="failed", reason=str(error).split("\n", 1)[0][:500])

    def run_above(self, run: Run) -> Run | None:
        """Return a committed run of a higher generation whose range overlaps the range of `run`, or None (rule V4).

        Runs of streams are not considered.
        """
        done = (one for one in self.all() if one.status == "committed" and one.kind != "stream")
        above = (one for one in done if one.generation > run.generation and one.overlaps(run.first, run.last))
        return next(above, None)


def _after(last: datetime | None) -> datetime:
    """Return the time to store in a run's next row.

    This time is always later than `last`, the time of the previous row, because readers use only the latest row of a
    run.
    """
    now = datetime.now(UTC)
    return now if last is None else max(now, last + timedelta(microseconds=1))


def _row(run: Run) -> dict[str, Any]:
    same = {name: getattr(run, name) for name in _SAME}
    return {**same, "range_start": moment(run.first), "range_end": moment(run.last)}


def _run(row: Mapping[str, Any]) -> Run:
    first = instant(row["range_start"]) if row["range_start"] else BEGINNING
    last = instant(row["range_end"]) if row["range_end"] else END_OF_TIME
    # `get` is used because a table of runs from an earlier version of Tailrace may lack a column.
    same: dict[str, Any] = {name: row.get(name) for name in _SAME}
    return Run(first=first, last=last, **same)


_SAME = tuple(one.name for one in fields(Run) if one.name not in ("first", "last"))
"""The fields that have the same name and value in a run and in its row."""
