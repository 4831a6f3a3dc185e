"""What a landing folder has only by symbolic links is passed over and counted; each file is read once (rule X6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.ingest.folders.folder_changes import without_links
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.ingest.test_unreadable_files import drained
from tests.ingest.test_worker_landing import lines, ride


def linked(place: Path) -> Path:
    """A folder, given by a link, with a file of its own, and links to it, to others, to nothing, and to itself."""
    outside, real = place / "outside", place / "real"
    for folder in (outside, real / "below"):
        folder.mkdir(parents=True)
    lines(outside / "secret.json", [ride("secret", 1)])
    lines(real / "a.json", [ride("a", 1)])
    lines(real / "below" / "b c.json", [ride("b", 2)])
    for name, target in {
        "again.json": "a.json", "loop": ".", "elsewhere": str(outside), "one.json": str(outside / "secret.json"),
        "nowhere.json": "missing",
    }.items():  # fmt: skip
        (real / name).symlink_to(target)
    (place / "folder").symlink_to(real)
    return place / "folder"


@pytest.mark.parametrize("given", ["{}", "{}/", "file://{}", "{}/../folder"])
def test_X6_only_files_that_are_in_the_folder_itself_are_read(tmp_path: Path, given: str) -> None:
    folder = linked(tmp_path)
    names = ["a.json", "below/b c.json", "again.json", "loop/a.json", "loop/loop/below/b c.json", "one.json",
             "elsewhere/secret.json", "nowhere.json"]  # fmt: skip
    files = [f"file:{folder}/{name}" for name in names]
    assert without_links(given.format(folder), files) == files[:2]
    assert without_links("s3://bucket/folder", ["s3://bucket/folder/a.json"]) == ["s3://bucket/folder/a.json"]


def test_X6_a_folder_that_is_given_relative_to_the_process_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = linked(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = [f"file:{os.getcwd()}/folder/{name}" for name in ("a.json", "again.json")]
    assert folder.exists()
    assert without_links("folder", files) == files[:1]


def test_X6_a_loop_and_links_out_of_the_folder_bring_no_record_and_are_counted(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    lake = Lake(settings.model_copy(update={"engine": "duckdb"}))
    reports = drained(plain, lake, linked(tmp_path), "json")
    rows = lake.table("rides").scan().to_arrow().to_pylist()
    assert sorted(row["who"] for row in rows) == ["a", "b"]
    assert lake.table("rides__rejected").scan().to_arrow().num_rows == 0
    assert sum(one.landed.links for one in reports) > 3
