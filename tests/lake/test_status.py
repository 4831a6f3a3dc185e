"""The status of a definition is one object, whatever the kind: what a kind keeps between epochs is a part of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tailrace import Log
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.stage_progress import StageProgress, stage_progress
from tailrace.lake.read.status import kept_state, overview, status
from tailrace.model.definition.definition import Definition, KindError
from tailrace.settings import Settings
from tests.support.lakes.small_lake import HOURLY, make


@dataclass(frozen=True)
class Tap(Definition):
    """A kind of one's own, over the tables of another definition."""

    name: str = HOURLY.name
    log: Log = HOURLY.log
    kind_name = "tap"
    fingerprint = "0"


@pytest.fixture
def lake(settings: Settings) -> Lake:
    return make(settings)


def test_a_kind_of_ones_own_has_a_status_once_it_is_registered(lake: Lake) -> None:
    with pytest.raises(KindError, match="Tap: no kind of definition that there is a status for"):
        status(lake, Tap())
    kept_state.register(Tap, lambda definition, ledger: None)
    (tap, hourly) = (status(lake, one).own for one in (Tap(), HOURLY))
    assert tap is not None
    assert hourly is not None
    assert (tap.kept, tap.same_definition, hourly.same_definition) == (None, False, True)
    assert tap.counts == hourly.counts == {"pane": 5, "late": 1, "partial": 6}


def test_the_progress_of_a_status_is_the_one_that_the_heads_of_tables_tell(lake: Lake) -> None:
    ((own,), progress) = (overview(lake)[1], stage_progress(lake, HOURLY.name))
    assert isinstance(own, StageProgress)
    assert progress is not None
    assert vars(progress).items() <= vars(own).items()
    assert (progress.epoch, progress.answers_epoch, progress.token) == (2, 1, 4)
    assert progress.lag == 90 * 60 * 1_000_000
    assert stage_progress(lake, "nowhere") is None
