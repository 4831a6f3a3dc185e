"""The plugin of pytest: the fixtures of a scratch lake, and what a failing comparison with a table prints."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.testing.rows import Rows

if TYPE_CHECKING:
    from tailrace.testing.clocks import ProcessingTime
    from tailrace.testing.lakes import BackfillCounts, LakeStream, ScratchLake

_WHOLE = pytest.StashKey[list[str]]()

_SHORT = 7
"""The number of lines from which on a difference has a section of its own: pytest cuts off longer explanations."""


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> list[str] | None:
    """Return the lines that show how rows differ from a table, or from other rows."""
    rows, other = (left, right) if isinstance(left, Rows) else (right, left)
    if op != "==" or not isinstance(rows, Rows) or not isinstance(other, str | Rows):
        return None
    said = "the table" if isinstance(other, str) else other.what
    first, *lines = rows.compared(other).lines(f"in {said}", rows.what)
    title = f"{rows.what} == {said}"
    if len(lines) < _SHORT or config.get_verbosity() > 1:
        return [title, first, *lines]
    config.stash[_WHOLE] = [f"{title}: {first}", *lines]
    return [title, f"{first}: see below"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a long difference to the report of the test that failed for it."""
    report = yield
    lines = item.config.stash.get(_WHOLE, None)
    if lines is not None:
        del item.config.stash[_WHOLE]
        if report.failed:
            report.sections.append(("what differs", "\n".join(lines)))
    return report


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ScratchLake]:
    """A lake of the test's own: `lake.answers(definition)`, `lake.panes(definition)`, `lake.check(definition)`."""
    from tailrace.testing.lakes import ScratchLake

    made = ScratchLake(tmp_path / "lake")
    yield made
    made.close()


@pytest.fixture
def stream(lake: ScratchLake) -> LakeStream:
    """Folds an epoch into the lake as a stream does: `stream(definition, records)`."""
    return lake.stream


@pytest.fixture
def clock(lake: ScratchLake) -> ProcessingTime:
    """The processing time of the stream: `clock.set("2026-03-01T09:00")`, `clock.advance(minutes(5))`."""
    return lake.stream.clock


@pytest.fixture
def backfill(lake: ScratchLake) -> Callable[..., BackfillCounts]:
    """Recomputes a range of the lake: `backfill(definition, "2026-03-01T09:00", "2026-03-01T12:00")`."""
    return lake.backfill
