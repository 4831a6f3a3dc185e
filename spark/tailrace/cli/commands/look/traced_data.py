"""Write what `tailrace trace` found as JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.lake.read.answer_records import AnswerRecords
from tailrace.lake.read.record_trace import InWindow, LeftOut, Row, Step
from tailrace.lake.read.wanted_records import FoundRecords, LandedRecord
from tailrace.model.base.time import text


def found_data(found: FoundRecords, traced: Sequence[tuple[LandedRecord, list[Step]]]) -> dict[str, Any]:
    """Return what was found in a log, and what became of each record, as JSON data."""
    return {
        "log": found.log,
        "records": [
            {**_landed_data(record), "steps": [_step_data(step) for step in steps]} for record, steps in traced
        ],
        "rejected": [
            {
                "raw": one.raw.decode(errors="backslashreplace"),
                "error": one.error,
                "place": {"epoch": one.epoch, "source": one.source, "offset": one.offset},
            }
            for one in found.rejected
        ],
        "more": found.more,
        "dropped": found.dropped,
    }


def _landed_data(record: LandedRecord) -> dict[str, Any]:
    return {
        "place": {"epoch": record.epoch, "source": record.source, "offset": record.offset},
        "landed_at": None if record.arrival is None else text(record.arrival),
        "values": dict(record.values),
    }


def _step_data(step: Step) -> dict[str, Any]:
    if isinstance(step, InWindow):
        late = None if step.late is None else {"epoch": step.late.epoch, "behind_seconds": step.late.behind / 1e6}
        return {
            "definition": step.definition,
            "state": step.state.value,
            "key": list(step.key),
            "window": [text(step.window.start), text(step.window.end)],
            "late": late,
            "taken_in_by": None if step.run is None else {"run": step.run.run, "generation": step.run.generation},
            "panes": [{"version": list(pane.version), "timing": pane.timing} for pane in step.panes],
            "answer": None if step.answer is None else dict(step.answer.answer),
        }
    if isinstance(step, LeftOut):
        state = "rejected" if step.rejected else "left out"
        return {"definition": step.definition, "state": state, "reason": step.reason}
    if isinstance(step, Row):
        state = "taken back" if step.taken_back else "given"
        return {"definition": step.definition, "state": state, "epoch": step.epoch, "values": dict(step.values)}
    state = "waiting" if step.behind is None else "late"
    behind = None if step.behind is None else step.behind / 1e6
    return {"definition": step.definition, "state": state, "epoch": step.epoch, "behind_seconds": behind}


def answer_data(found: AnswerRecords, names: Sequence[str]) -> Mapping[str, Any]:
    """Return an answer and its records as JSON data; `names` are the key's columns."""
    window = None if found.window is None else [text(found.window.start), text(found.window.end)]
    return {
        "key": dict(zip(names, found.key, strict=True)),
        "window": window,
        "answer": None if found.answer is None else dict(found.answer.answer),
        "records": [
            {**_landed_data(one.record), "log": one.record.log, "state": one.state.value} for one in found.records
        ],
        "answers": [
            {
                "key": list(one.key),
                "window": [text(one.window.start), text(one.window.end)],
                "version": list(one.pane.version),
                "answer": dict(one.pane.answer),
            }
            for one in found.answers
        ],
        "more": found.more,
    }
