"""Find windows and rows of later stages that lack a backfill's correction of an earlier stage (rules V4 and X4).

A run computes only the windows in its range. A window of a later stage may contain a corrected answer but be wider than
the range; the run does not compute this wider window. The run also does not compute the windows of a stage that was
left out of the run.

The table of runs shows permanently which windows lack the correction, because each run records which runs of its inputs
it has seen. If a correction affects a range, the range lacks the correction until a run that has seen the correction
covers the range. Corrections of windows that are still open need no backfill: the streams of later stages read these
corrections themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.run_inputs import SeenRuns, from_text, standing_runs
from tailrace.lake.corrections.stage_ranges import ranges_of
from tailrace.lake.schema.filters import equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, text
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.windows.window_spans import touching_groups


@dataclass(frozen=True)
class Cause:
    """A run that corrected some results of the definition with the name `of`."""

    of: str
    run: Run


@dataclass(frozen=True)
class StageBehind:
    """A range of window timestamps or event times, in microseconds, in which a stage lacks the corrections of some
    runs.

    The stage's stream still computes the rows from time `open_from` on; a backfill can compute the earlier rows. If
    `open_from` is at or before `first`, the backfill has to wait. If the stage is a computation, `open_from` is None,
    because backfills do not compute stages of this kind.
    """

    stage: Definition
    first: int
    last: int
    causes: tuple[Cause, ...]
    open_from: int | None = END_OF_TIME

    @property
    def ready(self) -> bool:
        """Whether a backfill can make at least a part of the corrections now."""
        return self.open_from is not None and self.first < self.open_from

    @property
    def said(self) -> str:
        """A readable message that names the range and the corrections that the range lacks."""
        windows = ranges_of(self.stage).rows
        by = dict.fromkeys(f"run {one.run.run} corrected of {one.of}" for one in self.causes)
        named = " and ".join([*by][-2:]) + (f" and {len(by) - 2} runs before" if len(by) > 2 else "")
        where = f"{windows} of {self.stage.name} from {text(self.first)} to {text(self.last)} lack what {named}"
        if self.open_from is None:
            return f"{where}; a {self.stage.kind_name} is not computed apart: stream it under another name"
        if not self.ready:
            return f"{where}; a backfill can bring it once they are closed: by now up to {text(self.open_from)}"
        return where


def stages_behind(lake: Lake, definition: Definition) -> list[StageBehind]:
    """Find the ranges that lack corrections, for a definition and all its inputs, in the order of the stages.

    A stage also lacks corrections if one of its inputs lacks corrections. A single backfill of all ready ranges makes
    the missing corrections in every stage.
    """
    found: dict[str, list[StageBehind]] = {}
    for stage in chain(definition):
        if (inputs := stage.before) and lake.has(ledger_name(stage.name)):
            found[stage.name] = list(_of_stage(lake, stage, inputs, found))
    return [one for lacks in found.values() for one in lacks]


def backfills_of(behind: Iterable[StageBehind]) -> list[tuple[int, int]]:
    """Return the ranges of the backfills that are needed and possible now, merged so that no two ranges overlap."""
    spans = {(one.first, min(one.last, one.open_from or BEGINNING)) for one in behind if one.ready}
    return [(of[0][0], max(last for _, last in of)) for of in touching_groups(spans, lambda span: span)]


def _of_stage(
    lake: Lake, stage: Definition, inputs: Sequence[Definition], before_: dict[str, list[StageBehind]]
) -> Iterator[StageBehind]:
    own = standing_runs(lake, stage.name) if stage.recomputable else []
    covering = [(run, from_text(run.inputs)) for run in own]
    lacks = list[tuple[int, int, tuple[Cause, ...]]]()
    for input_ in inputs:
        if not input_.recomputable:
            # The input is a computation. The rows of a computation are not computed again, even if an input of the
            # computation was corrected.
            continue
        for run in standing_runs(lake, input_.name):
            if run.changed == 0 and run.retracted == 0:
                continue
            seen = [one for one, inputs_seen in covering if _has_seen(one, inputs_seen, input_.name, run)]
            left = _left(lake, stage, input_, run.first, run.last, seen)
            if left and (corrected := _corrected(lake, input_, run)) is not None:
                lacks += [(*span, (Cause(input_.name, run),)) for span in _left(lake, stage, input_, *corrected, seen)]
        for one in before_.get(input_.name, ()):
            lacks += [(*span, one.causes) for span in _left(lake, stage, input_, one.first, one.last, ())]
    for of in touching_groups(lacks, lambda lack: lack[:2]):
        causes = tuple(dict.fromkeys(cause for *_, own in of for cause in own))
        yield StageBehind(stage, of[0][0], max(last for _, last, _ in of), causes, ranges_of(stage).open_from(lake))


def _corrected(lake: Lake, input_: Definition, run: Run) -> tuple[int, int] | None:
    """Return the range of a run's corrections that the streams of later stages do not read.

    The range is determined from the run's rows in the ledger. Returns None if the run corrected only open windows.
    """
    ranges = ranges_of(input_)
    own = every(equal("kind", ranges.kind), equal("generation", run.generation), equal("writer", "backfill"))
    ledger = lake.table(ledger_name(input_.name))
    batches = ledger.scan(row_filter=own, selected_fields=(ranges.at,)).to_arrow_batch_reader()
    found = {instant(one) - ranges.after for batch in batches for one in batch[ranges.at].unique().to_pylist()}
    closed = ranges.closed(lake, run)
    times = [one for one in found if run.first <= one < closed]
    return (min(times), max(times) + 1) if times else None


def _has_seen(run: Run, inputs: dict[str, SeenRuns] | None, of: str, correction: Run) -> bool:
    """Return True if a run took a correction into account, and read the log at least up to the correction's epoch."""
    if (run.log_epoch or -1) < (correction.log_epoch or -1):
        return False
    if inputs is None:
        # The run was recorded before the column `inputs` existed, so the times at which both runs were recorded are
        # compared.
        return run.at is not None and correction.at is not None and run.at >= correction.at
    return correction.generation in inputs.get(of, SeenRuns())


def _left(
    lake: Lake, stage: Definition, input_: Definition, first: int, last: int, seen: Sequence[Run]
) -> list[tuple[int, int]]:
    """Return the ranges of a stage that a change in the given range of its input affects.

    The ranges of the runs in `seen` are left out.
    """
    if first >= last:
        return []
    ranges = ranges_of(stage)
    spans = [ranges.made_of(lake, *ranges_of(input_).happened(first, last))]
    for run in seen:
        spans = [part for span in spans for part in _without(span, run)]
    return [span for span in spans if ranges.any_in(*span)]


def _without(span: tuple[int, int], run: Run) -> Iterator[tuple[int, int]]:
    first, last = span
    for part in ((first, min(last, run.first)), (max(first, run.last), last)):
        if part[0] < part[1]:
            yield part
