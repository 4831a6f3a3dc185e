"""Transcripts of several stages: each stage's panes by the reference, and the laws however the records are cut."""

from __future__ import annotations

import pytest

from tailrace.model.step.reference import fold_stages
from tests.support.cases.stages import holds_for_stages
from tests.transcripts import Staged, joined, render, split, staged


@pytest.mark.parametrize("transcript", staged(), ids=str)
def test_the_reference_follows_stage_by_stage(transcript: Staged) -> None:
    runs = fold_stages(transcript.pipeline, transcript.epochs)
    found = [render(transcript.epochs, run.panes, run.late if place == 0 else ()) for place, run in enumerate(runs)]
    for one, expected in zip(found, transcript.expected, strict=True):
        assert one == expected, transcript.claim


@pytest.mark.parametrize("transcript", staged(), ids=str)
def test_L1_to_L3_hold_however_the_records_are_cut_into_epochs(transcript: Staged) -> None:
    epochs = list(transcript.epochs)
    reversed_ = [(bundle[::-1], clock) for bundle, clock in epochs]
    for cut in (epochs, reversed_, split(epochs), joined(epochs, 2), joined(epochs, len(epochs))):
        holds_for_stages(transcript.pipeline, cut)
