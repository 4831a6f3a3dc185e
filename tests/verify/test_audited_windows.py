"""An audit of a definition whose windows Python assigns assigns them once."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import ApproxDistinct, Fixed, Pipeline, minutes
from tailrace.engines.batch import batch_answers
from tailrace.engines.python.finished_windows import window_calls
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.strategies import Told
from tests.support.lakes.several_logs import VIEWS, Logs, Part, reached, view

SEEN = Pipeline(name="seen", log=VIEWS, key="ad", what={"n": ApproxDistinct("ad")}, where=Told(Fixed(minutes(1))))


def test_the_windows_of_records_are_assigned_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, calls = Logs(Lake(settings)), list[str]()
    assigned = window_calls

    def counting(pipeline: Pipeline, *rest: Any) -> Any:
        calls.append(pipeline.name)
        return assigned(pipeline, *rest)

    monkeypatch.setattr(batch_answers, "window_calls", counting)
    for epoch in range(3):
        logs.land({"views": Part([view(50 * epoch + n, "a") for n in range(4)], reached(50 * epoch)), "clicks": None})
    logs.fold(SEEN)
    assert audit(logs.lake, SEEN).ok
    assert calls == ["seen"]
