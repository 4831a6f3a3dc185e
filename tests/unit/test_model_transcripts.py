"""The reference execution against the transcripts: the paper's figures and one file for each claim of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.model import examples
from tailrace.model.reference import at_once, fold
from tests.support import laws
from tests.transcripts import Transcript, load, render, transcripts


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_the_reference_follows(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    assert render(transcript.epochs, run.panes, run.late) == transcript.expected, transcript.claim


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_the_laws_hold_along(transcript: Transcript) -> None:
    laws.holds_for_fold(transcript.pipeline, transcript.epochs)
    laws.replays_the_same(transcript.pipeline, transcript.epochs)


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_T4_records_of_an_epoch_in_the_other_order_give_the_same_panes(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, [(bundle[::-1], clock) for bundle, clock in transcript.epochs])
    assert render(transcript.epochs, run.panes, run.late) == transcript.expected, transcript.claim


@pytest.mark.parametrize("number", range(6, 15))
def test_a_figures_transcript_is_the_example_of_that_figure(number: int) -> None:
    transcript = load(f"figure_{number:02}")
    assert replace(transcript.pipeline, name=f"figure_{number}") == examples.figure(number)
    expected = examples.micro_batches() if number == 11 else examples.element_at_a_time()
    assert render(transcript.epochs, [], []) == render(expected, [], [])


@pytest.mark.parametrize(("number", "totals"), [(6, [51]), (10, [14, 22, 3, 12])])
def test_figures_6_and_10_are_batches(number: int, totals: list[int]) -> None:
    run = at_once(examples.figure(number), examples.records())
    assert [pane.values["total"] for pane in run.panes] == totals


def test_figure_8_is_the_same_in_micro_batches() -> None:
    run = fold(examples.figure(8), examples.micro_batches())
    assert [pane.values["total"] for pane in run.panes] == [12, 10, 11, 18]
