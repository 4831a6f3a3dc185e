"""The replay: recorded epochs are folded again, and compared with the ledger row for row (law L3).

A replay takes the recorded clocks, in one session of either engine. Its rows are gathered outside the lake's tables,
and then compared with the ledger in SQL. It takes no lease, so a stream can run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.definition import KindError, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.verify.join_replay import replay_join
from tailrace.verify.map_replay import replay_map
from tailrace.verify.pipeline_replay import replay_pipeline
from tailrace.verify.recorded_epochs import ReplayRange
from tailrace.verify.row_diff import Replayed


@singledispatch
def replay_of(definition: object, lake: Lake, asked: ReplayRange) -> Replayed:
    """Fold recorded epochs of a definition again, and compare their rows."""
    raise KindError("replay", definition)


replay_of.register(Pipeline, replay_pipeline)
replay_of.register(Map, replay_map)
replay_of.register(Join, replay_join)


def replay(
    lake: Lake,
    definition: Ranged,
    first: int | None = None,
    last: int | None = None,
    *,
    keep: str | None = None,
    watch: Callable[[int], None] = lambda epoch: None,
) -> Replayed:
    """Fold the epochs `first` to `last` of one stage again; by default from the first to the last of the ledger.

    `keep` names a new table for the replayed rows of a pipeline; `watch` is called with each epoch as it begins, where
    epochs are folded one after another. Raises `ReplayError` where an epoch is not in the ledger, its clock is not
    known any more, or a table `keep` exists or cannot be made, and `OtherDefinitionError` where the ledger is another
    definition's.
    """
    return replay_of(definition, lake, ReplayRange(first, last, keep, watch))
