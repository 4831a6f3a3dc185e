"""A replay of a generation that was put in place by `apply` begins with the epoch after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Pipeline, minutes
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING
from tailrace.operate.changeover import apply
from tailrace.settings import Settings
from tailrace.verify.as_of import as_of
from tailrace.verify.audit import audit
from tailrace.verify.recorded_epochs import ReplayError
from tailrace.verify.replay import replay
from tests.support.lakes.several_logs import VIEWS, Logs, Part, reached, view

SEEN = Pipeline(
    name="seen", log=VIEWS, key="ad", what={"n": Count()}, where=Fixed(minutes(1)), how=RETRACTING,
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
)  # fmt: skip
CHANGED = replace(SEEN, where=Fixed(minutes(2)))


@pytest.mark.parametrize("records", [0, 3])
def test_L3_a_replay_after_an_apply_begins_after_it_with_or_without_records(settings: Settings, records: int) -> None:
    logs = Logs(Lake(settings))
    for epoch in range(3):
        logs.land({"views": Part([view(50 * epoch + n, "a") for n in range(4)], reached(50 * epoch)), "clicks": None})
    logs.land({"views": Part([view(150 + n, "b") for n in range(records)], reached(160)), "clicks": None})
    logs.fold(SEEN)
    backfill(logs.lake, SEEN, BEGINNING, reached(60))
    applied = apply(logs.lake, CHANGED)
    assert applied.epoch == 3
    again = replay(logs.lake, CHANGED)
    assert again.ok, again.differences
    assert (again.first, again.last) == (4, 3), "nothing was folded yet"
    with pytest.raises(ReplayError, match="ends with epoch 3: there is none from 4 on yet"):
        replay(logs.lake, CHANGED, 4)
    built = r"epoch 3 of seen__ledger cannot be {}: .* epochs up to 3 was built at once, .*; begin with epoch 4$"
    for first, last in ((3, 3), (None, 3), (3, None)):
        with pytest.raises(ReplayError, match=built.format("folded again")):
            replay(logs.lake, CHANGED, first, last)
    with pytest.raises(ReplayError, match=r"epoch 2 of seen__ledger cannot be shown: .* begin with epoch 4$"):
        as_of(logs.lake, CHANGED, 2)
    for epoch in (4, 5):
        logs.land({"views": Part([view(50 * epoch + n, "a") for n in range(4)], reached(50 * epoch)), "clicks": None})
    logs.fold(CHANGED)
    again = replay(logs.lake, CHANGED)
    assert again.ok, again.differences
    assert (again.first, again.last) == (4, 5)
    assert audit(logs.lake, CHANGED).ok
