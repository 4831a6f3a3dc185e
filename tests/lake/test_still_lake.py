"""A lake that stands still reads each table once, plans the same files, and keeps no more statistics than it may."""

from __future__ import annotations

import pytest
from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.still_lake import KeptManifests, StillLake
from tailrace.lake.schema.filters import equal
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY, append, pane

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

LEDGER = f"{HOURLY.name}__ledger"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake.make(Settings(warehouse=tmp_path_factory.mktemp("still") / "lake"))


def files(lake: Lake) -> list[str]:
    table = lake.table(LEDGER)
    scans = [table.scan(equal("kind", kind)) for kind in ("pane", "late")]
    return [one.file.file_path for scan in scans for one in scan.plan_files()]


def test_a_page_sees_one_state_of_a_table_and_the_next_page_the_next_one(lake: Lake) -> None:
    kept = KeptManifests(100)
    page = StillLake.freeze(lake, kept)
    before = files(page)
    said = lake.head(LEDGER).properties
    append(lake, LEDGER, [pane("Rome", 11, 2, 3, (1, 1.0), "early")], said)
    assert files(page) == before
    assert page.head(LEDGER).snapshot != lake.head(LEDGER).snapshot
    after = files(StillLake.freeze(lake, kept))
    assert after == files(lake)
    assert len(after) == len(before) + 1
    assert page.has(LEDGER)
    assert not page.has("nothing")


def test_the_metadata_of_a_table_is_read_once_until_somebody_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = [], FromInputFile.table_metadata

    def counted(input_file: InputFile) -> TableMetadata:
        reads.append(input_file.location)
        return read(input_file)

    before = lake.head(LEDGER)
    monkeypatch.setattr(FromInputFile, "table_metadata", counted)
    assert [lake.head(LEDGER) for _ in range(3)] == [before] * 3
    assert reads == []
    append(lake, LEDGER, [pane("Rome", 12, 2, 3, (1, 1.0), "early")], before.properties)
    reads.clear()
    assert before.snapshot not in [lake.head(LEDGER).snapshot for _ in range(3)]
    assert len(reads) <= 1


@pytest.mark.parametrize("most", [0, 1, 3, 1000])
def test_no_more_statistics_are_kept_than_may_be_and_plans_are_the_same(lake: Lake, most: int) -> None:
    kept, own = KeptManifests(most), files(lake)
    for _ in range(2):
        assert files(StillLake.freeze(lake, kept)) == own
        assert len(kept) <= most
    assert len(kept) > 0 or most < 3
