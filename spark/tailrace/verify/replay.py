"""Replay recorded epochs: fold them again, and compare the resulting rows with the ledger's rows (law L3).

A replay uses the recorded clocks, and runs in one session of either engine. The replayed rows are collected outside the
lake's tables, and are then compared with the ledger in SQL. A replay takes no lease, so a stream can run at the same
time.
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
    """Fold recorded epochs of a definition again, and compare the resulting rows with the ledger."""
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
    """Fold the epochs `first` to `last` of one stage again; by default, from the ledger's first to its last epoch.

    `keep` names a new table for the replayed rows of a pipeline. If epochs are folded one after another, `watch` is
    called at the beginning of each epoch, with the epoch's number. Raises `ReplayError` if an epoch is not in the
    ledger, if an epoch's clock is no longer known, or if the table `keep` exists or cannot be created. Raises
    `OtherDefinitionError` if the ledger belongs to a definition that computes something else.
    """
    return replay_of(definition, lake, ReplayRange(first, last, keep, watch))
