"""The reference execution against the transcripts: the paper's figures and one file for each claim of the rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.samples import examples
from tailrace.model.step.reference import at_once, fold
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import answers
from tests.support.checks import laws
from tests.transcripts import Transcript, joined, load, render, split, transcripts


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_the_reference_follows(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, transcript.epochs)
    assert render(transcript.epochs, run.panes, run.late, run.rejected) == transcript.expected, transcript.claim


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_the_laws_hold_along(transcript: Transcript) -> None:
    laws.holds_for_fold(transcript.pipeline, transcript.epochs)
    laws.replays_the_same(transcript.pipeline, transcript.epochs)


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_T4_records_of_an_epoch_in_the_other_order_give_the_same_panes(transcript: Transcript) -> None:
    run = fold(transcript.pipeline, [(bundle[::-1], clock) for bundle, clock in transcript.epochs])
    assert render(transcript.epochs, run.panes, run.late, run.rejected) == transcript.expected, transcript.claim


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_L1_the_laws_hold_however_the_records_are_cut_into_epochs(transcript: Transcript) -> None:
    epochs = list(transcript.epochs)
    for cut in (split(epochs), joined(epochs, 2), joined(epochs, 3), joined(epochs, len(epochs))):
        laws.holds_for_fold(transcript.pipeline, cut)


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_T4_a_record_at_a_time_says_the_same_at_the_end(transcript: Transcript) -> None:
    """Cut into single records, nothing is late that was not, and the answers are the same once the input has ended."""
    pipeline = transcript.pipeline
    end = (list[Record](), Clock(len(transcript.epochs), END_OF_TIME, transcript.epochs[-1][1].processing_time))
    whole = fold(pipeline, [*transcript.epochs, end])
    cut = split([*transcript.epochs, end])
    run = fold(pipeline, cut)
    if pipeline.finishing == "refuse":
        assert answers(run.panes) == answers(whole.panes), transcript.claim
        assert Counter(id(one.record) for one in run.late) == Counter(id(one.record) for one in whole.late)


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
