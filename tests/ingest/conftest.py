"""Here Spark reads and lands also what is small, as it does what is large."""

from __future__ import annotations

import pytest

from tailrace.engines import choose


@pytest.fixture(autouse=True)
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "BROUGHT", -1)
