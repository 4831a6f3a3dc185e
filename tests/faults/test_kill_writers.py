"""A process that is killed, or fails, while it writes several files at once lists none that is not whole (X2)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.digests import summed_output
from tailrace.lake.upkeep.orphans import orphans
from tailrace.lake.upkeep.rewriting import write_together
from tailrace.testing import Epoch
from tests.support.engines.threads import ThreadedLake
from tests.support.faults import dying_writers
from tests.support.faults.dying_writers import ACTIONS, BILLS, END, records
from tests.support.faults.killing import ROOT

pytestmark = pytest.mark.slow

DYING_IN = {"streamed": "bills__ledger", "backfilled": "bills__ledger", "followed": "bills"}
DYING_IN |= {"compacted": "bills__ledger"}
"""The table whose files are being written when the process of an action dies."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake for each action, whose writers were killed. It takes 5 s."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.support.faults.dying_writers", str(folder), *ACTIONS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [f"{name} 9" for name in ACTIONS], done.stderr
    return folder


def listed_files(lake: Lake, table: str) -> Iterator[Any]:
    """Return the data files that any snapshot of a table lists."""
    loaded = lake.table(table)
    for snapshot in loaded.snapshots():
        for manifest in snapshot.manifests(loaded.io):
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False))


def all_listed_are_whole(lake: Lake) -> None:
    for table in ("orders", "bills", "bills__ledger", "bills__runs"):
        for file in listed_files(lake, table):
            place = Path(file.file_path.removeprefix("file://"))
            assert place.stat().st_size == file.file_size_in_bytes
            assert pq.ParquetFile(place).read().num_rows == file.record_count


def orphans_of(lake: Lake, table: str) -> list[Path]:
    found = orphans(lake, table, datetime.now(UTC) + timedelta(minutes=1))
    return [Path(one.removeprefix("file://")) for one in found if "/data/" in one]


def end_as_if_nothing_had_been(lake: ThreadedLake, name: str) -> None:
    """Run what died once more, and compare the answers with those of the reference."""
    if name == "streamed":
        # The first epoch is in the tables: its records are counted again, but not folded again.
        lake.stream._started((BILLS,)).add(Epoch(records(0)))
        lake.stream._offsets["orders"] = len(records(0))
        lake.stream(BILLS, records(1))
    elif name == "compacted":
        assert write_together(lake.tables, "bills__ledger", 2, 10**9) != (0, 0)
    else:
        lake.backfill(BILLS)
    lake.stream.settle()
    rows = lake.tables.table("bills").scan().to_arrow().select(["number", "window_start", "cents"]).to_pylist()
    found = {(row["number"], row["window_start"].minute): row["cents"] for row in rows}
    assert found == expected(name)
    assert len(rows) == len(found)
    all_listed_are_whole(lake.tables)


def expected(name: str) -> dict[tuple[int, int], int]:
    """Return the cents of each number and minute: those of windows that the watermark has passed or a backfill did."""
    cents, streamed = Counter[tuple[int, int]](), name in ("streamed", "compacted")
    for one in [*records(0), *(records(1) if streamed else END)]:
        cents[one["number"], int(one["at"][-2:])] += one["cents"]
    last = max(minute for _, minute in cents)
    return {place: total for place, total in cents.items() if place[1] < last}


@pytest.mark.parametrize("name", ACTIONS)
def test_X2_a_kill_while_several_files_are_written_leaves_whole_files_and_orphans(killed: Path, name: str) -> None:
    lake = ThreadedLake(killed / name, 2)
    all_listed_are_whole(lake.tables)
    torn = orphans_of(lake.tables, DYING_IN[name])
    assert len(torn) >= (1 if name == "compacted" else 2)
    for place in torn:
        place.unlink()
    all_listed_are_whole(lake.tables)
    with dying_writers.small_files():
        end_as_if_nothing_had_been(lake, name)
    lake.check(BILLS)
    lake.close()


@pytest.mark.parametrize("name", ["streamed", "backfilled", "followed"])
def test_X2_a_write_that_fails_among_several_publishes_nothing_and_leaves_no_thread(tmp_path: Path, name: str) -> None:
    lake, write = ThreadedLake(tmp_path / "lake", 4), summed_output._Summed.write
    before, failing = threading.active_count(), dict[str, Any]()

    def armed(table: str, most: int) -> None:
        failing.update(table=f"/{table}/data/", head=lake.tables.head(table).snapshot, name=table)

    def fails(stream: Any, some: bytes) -> int:
        if failing and failing["table"] in stream._output.location:
            failing["wrote"] = failing.get("wrote", 0) + 1
            if failing["wrote"] == 2:
                raise OSError(28, "No space left on device")
        return write(stream, some)

    with dying_writers.small_files():
        with (
            patch.object(summed_output._Summed, "write", lambda stream, some: fails(stream, some)),
            pytest.raises(Exception, match="No space left"),
        ):
            ACTIONS[name](lake, armed)
        assert lake.tables.head(failing["name"]).snapshot == failing["head"]
        lake.stream.restart()
        assert threading.active_count() <= before
        all_listed_are_whole(lake.tables)
        lake = ThreadedLake(tmp_path / "lake", 4)
        end_as_if_nothing_had_been(lake, name)
    lake.close()
