"""Write what `tailrace trace` found as JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.model.base.time import text
from tailrace.trace.answer_records import AnswerRecords
from tailrace.trace.steps import Step
from tailrace.trace.wanted_records import FoundRecords, LandedRecord


def found_data(found: FoundRecords, traced: Sequence[tuple[LandedRecord, list[Step]]]) -> dict[str, Any]:
    """Return what was found in a log, and what became of each record, as JSON data."""
    return {
        "log": found.log,
        "records": [{**_landed_data(record), "steps": [step.data for step in steps]} for record, steps in traced],
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
