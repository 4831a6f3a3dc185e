"""The memory of backfills and of streams that catch up: `TAILRACE_MEMORY` bounds it, whatever number of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.engines.choose import in_bytes
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.support.lakes import large_log
from tests.support.processes.peaks import peak_of

pytestmark = pytest.mark.slow

RECORDS = 2_000_000
"""They take more than a gigabyte as rows of Arrow, and nearly as many windows."""

SETTING, BESIDE = "100MB", 350 * 10**6
"""The setting, and the memory beside it: packages, and the rows of files that two threads write."""

ADDRESSES = 1_600 * 10**6
"""The kernel's limit. It counts what DuckDB and the C library reserve and do not use: up to a gigabyte, once."""


def loaded() -> None:
    """Load what a process has before it does anything."""
    Lake(Settings())


@pytest.fixture
def _one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's usual pool reserves a gigabyte of addresses at once, which the kernel's limit would count."""
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")


@pytest.mark.usefixtures("_one_pool")
def test_a_backfill_takes_no_more_memory_than_its_setting_and_what_is_beside(tmp_path: Path) -> None:
    total = large_log.land(tmp_path, RECORDS, 8)
    changed, little = peak_of(large_log.backfilled, tmp_path, SETTING, 2, first=loaded, within=ADDRESSES)
    assert changed == large_log.answers(tmp_path)
    assert large_log.summed(tmp_path) == (RECORDS, total)
    assert little < in_bytes(SETTING) + BESIDE
    # With more memory, the same backfill takes more: it is the setting that holds.
    _, much = peak_of(large_log.answered_again, tmp_path, "1GB", 2, first=loaded)
    assert much > little + 60 * 10**6


@pytest.mark.usefixtures("_one_pool")
def test_a_fold_that_catches_up_takes_no_more_memory_than_its_setting_and_what_is_beside(tmp_path: Path) -> None:
    total = large_log.land(tmp_path, RECORDS // 5, 4)
    epochs, peak = peak_of(large_log.caught_up, tmp_path, SETTING, 2, first=loaded, within=ADDRESSES)
    assert epochs == 4
    assert peak < in_bytes(SETTING) + BESIDE
    assert large_log.summed(tmp_path) == (RECORDS // 5, total)
