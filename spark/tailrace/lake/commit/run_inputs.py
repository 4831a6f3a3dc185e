"""Record, for each run, which runs of its input definitions the run has seen.

With this record, Tailrace finds later stages that lack a correction, so that no correction is lost.

If a backfill corrects closed windows, or rows of a map or a join, a stream does not pass these corrections on to later
stages. A later stage gets these corrections only if a run computes this stage again. Each run therefore records which
runs of its inputs it has seen (column `inputs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.range_replacement import replacing_runs
from tailrace.lake.commit.runs_table import recorded_runs, restored_generation
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition


@dataclass(frozen=True)
class SeenRuns:
    """The committed runs of an input definition that a run has taken into account.

    These are the runs with generations up to `last`, except the generations in `less`.
    """

    last: int = 0
    less: frozenset[int] = frozenset()

    def __contains__(self, generation: int) -> bool:
        return generation <= self.last and generation not in self.less

    def and_of(self, generations: Iterable[int]) -> SeenRuns:
        """Return the runs of this object, extended by the runs of the given generations.

        >>> seen = SeenRuns(3).and_of([6])
        >>> [generation in seen for generation in (3, 4, 5, 6, 7)]
        [True, False, False, True, False]
        """
        more = frozenset(generations)
        last = max(self.last, *more, 0)
        return SeenRuns(last, (self.less | frozenset(range(self.last + 1, last + 1))) - more)


def as_text(seen: Mapping[str, SeenRuns]) -> str | None:
    """Encode the runs that a run has seen as text for the table of runs; return None if the definition has no inputs.

    The keys of `seen` are the names of the input definitions.

    >>> as_text({"visits": SeenRuns(7, frozenset({5}))})
    '{"visits":[7,5]}'
    """
    found = {name: [of.last, *sorted(of.less)] for name, of in sorted(seen.items())}
    return json.dumps(found, separators=(",", ":")) if found else None


def from_text(text: str | None) -> dict[str, SeenRuns] | None:
    """Decode the runs that a run has seen; return None if `text` is None.

    `text` is None for a run without inputs, and for a run that was recorded before the column `inputs` existed.
    """
    if text is None:
        return None
    return {name: SeenRuns(last, frozenset(less)) for name, (last, *less) in json.loads(text).items()}


class RunInputs:
    """Collects, for the runs of one backfill, the runs of input definitions that these runs have seen.

    The seen runs include earlier runs and runs of the same backfill.
    """

    def __init__(self, lake: Lake, definition: Definition) -> None:
        self._seen: dict[str, SeenRuns] = {}
        for one in chain(definition)[:-1]:
            if not one.recomputable:
                continue
            runs = recorded_runs(lake, one.name)
            done = {run.run for run in _published(lake, one.name, runs)}
            open_ = {run.generation for run in runs if run.status == "started" and run.run not in done}
            self._seen[one.name] = SeenRuns(max((run.generation for run in runs), default=0), frozenset(open_))

    def of(self, stage: Definition) -> str | None:
        """Return the input runs that a run of `stage` has seen, as text for the table of runs."""
        read = [one.name for one in chain(stage)[:-1]]
        return as_text({name: self._seen[name] for name in read if name in self._seen})

    def add(self, stage: Definition, runs: Iterable[Run]) -> None:
        """Record the runs that the backfill made for a stage.

        Runs of later stages in the same backfill then count the committed runs as seen.
        """
        committed = [run.generation for run in runs if run.status == "committed"]
        self._seen[stage.name] = self._seen.get(stage.name, SeenRuns()).and_of(committed)


def standing_runs(lake: Lake, name: str) -> list[Run]:
    """List the backfills that contributed to the present rows of the definition called `name`, in the order of
    generations.

    After `apply` has built a new generation, backfills from before this generation are not listed. After a rollback,
    the backfills of the restored generation are listed again.
    """
    runs = recorded_runs(lake, name)
    done = {run.run for run in _published(lake, name, runs)}
    held: dict[int, list[Run]] = {1: []}
    at = 1
    for run in runs:
        if run.kind == "backfill" and run.run in done:
            held[at].append(run)
        elif run.kind in ("apply", "rollback") and run.status == "committed":
            at, before = run.generation, held.get(restored_generation(run.reason), [])
            held[at] = [] if run.kind == "apply" else list(before)
    return held[at]


def _published(lake: Lake, name: str, runs: Iterable[Run]) -> list[Run]:
    """Return the backfills whose commit is in the ledger.

    A backfill is also included if it was killed after its commit, but before its row in the table of runs was marked as
    committed.
    """
    whole = [run for run in runs if run.kind == "backfill"]
    left = [run for run in whole if run.status == "started"]
    made = replacing_runs(commits(lake, ledger_name(name)).all) if left else set()
    return [run for run in whole if run.status == "committed" or (run.status == "started" and run.run in made)]
