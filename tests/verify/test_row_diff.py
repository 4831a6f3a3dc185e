"""The ledger's rows and replayed rows compared, in this process."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import evolve
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import Settings
from tailrace.verify.replay import replay
from tests.support.lakes.several_logs import PATIENT, Logs, random_epochs


def test_a_ledger_from_before_panes_said_which_they_are_gets_the_column_and_replays(settings: Settings) -> None:
    logs = Logs(Lake(settings))
    epochs = list(random_epochs(Random(7), 8))
    for parts in epochs[:4]:
        logs.land(parts)
    logs.fold(PATIENT)
    with logs.lake.table("patient__ledger").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("is_last")
    assert replay(logs.lake, PATIENT).ok
    for parts in epochs[4:]:
        logs.land(parts)
    with pytest.raises(LakeError, match=r"no column is_last any more.*tables apply"):
        logs.fold(PATIENT)
    # A column that was there before comes back only when asked for, with another number: its old values stay away.
    evolve(logs.lake, PATIENT, destructive=True)
    logs.fold(PATIENT)
    assert replay(logs.lake, PATIENT).ok
    rows = logs.lake.table("patient__ledger").scan(row_filter="kind = 'pane'").to_arrow().to_pylist()
    assert {row["epoch"] < 4 for row in rows if not row["retraction"] and row["is_last"] is None} == {True}
    assert any(row["is_last"] is not None for row in rows)
