"""The few definitions that real Spark runs at each change have what all the transcripts have between them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.reference import fold, fold_stages
from tailrace.model.windows.panes import Timing
from tailrace.sql.records.ways import Way, way
from tests.support.cases.few import FEW, FEW_OF_STAGES, few_epochs
from tests.support.cases.strategies import EVERYTHING
from tests.transcripts import staged, transcripts

_NAMES = re.compile(r"[A-Z][A-Za-z]+(?=\()")
_WORDS = ("on_time", "closing", "finishing")
"""Parts of a definition that are a word."""

_TERMS = {"Both", "Either", "Not", "Match", "Missing", "Col", "Value", "If"}
"""What conditions and expressions are made of, wherever they stand."""

_VALUES = {"Decimal", "Whole"}


def kinds(definitions: Iterable[Pipeline]) -> set[str]:
    """The names of the parts of definitions: those of a first stage, and those of later ones."""
    found = set[str]()
    for one in definitions:
        for place, stage in enumerate(one.stages):
            where = "later" if place else "first"
            for part in ("each", "keep", "what", "where", "when"):
                words = set(_NAMES.findall(str(stage.meaning.get(part)))) - _VALUES
                found |= {word if word in _TERMS else f"{where} {part} {word}" for word in words}
            found |= {f"{where} {part} {stage.meaning.get(part)}" for part in _WORDS}
            found.add(f"{where} merges {stage.where.merges} {stage.how.value}")
    return found


def test_they_have_every_kind_of_part_that_a_transcript_has() -> None:
    native = [one.pipeline for one in transcripts() if way(one.pipeline) is Way.SQL]
    assert kinds(native) - kinds(FEW.values()) == set()
    assert kinds(one.pipeline for one in staged()) - kinds(FEW_OF_STAGES.values()) == set()


def test_they_have_every_combiner_and_run_natively_but_for_windows_that_code_tells() -> None:
    assert {name for one in FEW.values() for name in one.what} >= set(EVERYTHING)
    assert {way(one) for one in FEW.values()} == {Way.SQL, Way.ASSIGNED}


def test_everything_comes_out_of_them_that_can() -> None:
    runs = {name: fold(one, few_epochs()) for name, one in FEW.items()}
    panes = [pane for run in runs.values() for pane in run.panes]
    assert {pane.timing for pane in panes} == set(Timing) - {Timing.CORRECTION}
    assert any(pane.retraction for pane in panes)
    assert all(run.panes for run in runs.values())
    assert sum(bool(run.late) for run in runs.values()) >= 2
    assert any(run.rejected for run in runs.values())
    stages = [fold_stages(one, few_epochs()) for one in FEW_OF_STAGES.values()]
    assert all(len(runs[-1].panes) > 3 for runs in stages)
    assert sum(any(pane.retraction for pane in run.panes) for runs in stages for run in runs[1:]) >= 2
