"""Files of a landing folder that are not read as they are now are found, counted and said, once each (rule X6)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.cli.commands.run.stream import _unread
from tailrace.ingest.checkpoint import Checkpoint
from tailrace.ingest.folders.folder_changes import find_changes, list_files
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.events import FolderChecked, Notice
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import log_status
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.ingest.test_unreadable_files import HOURLY
from tests.ingest.test_worker_landing import lines, ride
from tests.support.lakes.rides import RIDES

HIDDEN = ("_x.json", ".x.json", "x.json._COPYING_", "_folder/x.json", ".folder/below/x.json", "below/_SUCCESS")


def test_X6_hidden_names_and_no_links_are_counted(tmp_path: Path) -> None:
    for name in (*HIDDEN, "a.json", "below/b c.json", "_day=1/a:b.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")).write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.utime(tmp_path / "a.json", ns=(0, 1_234_567_899))
    found = list_files(f"file://{tmp_path}")
    assert set(found.times) == {f"{tmp_path}/{name}" for name in ("a.json", "below/b c.json", "_day=1/a:b.json")}
    assert found.times[f"{tmp_path}/a.json"] == 1234
    assert found.hidden == len(HIDDEN) + 1


times = st.integers(1, 5)


@given(st.dictionaries(st.sampled_from("abcdef"), times), st.dictionaries(st.sampled_from("abcdef"), times))
def test_X6_changed_files_are_all_that_have_another_time_and_moved_ones_have_the_time_of_one_that_is_gone(
    read: dict[str, int], there: dict[str, int]
) -> None:
    found = find_changes(read, there)
    assert set(found.changed) == {name for name in read.keys() & there.keys() if read[name] != there[name]}
    for before, now in found.moved:
        assert before not in there
        assert read[before] == there[now]
        assert list(there.values()).count(there[now]) == 1
    lonely = {name for name, at in there.items() if name not in read and list(there.values()).count(at) == 1}
    gone = [read[name] for name in read if name not in there]
    assert {now for _, now in found.moved} >= {name for name in lonely if gone.count(there[name]) == 1}


def _drained(spark: SparkSession, lake: Lake, folder: Path, definitions: Sequence[object] = (HOURLY,)) -> None:
    stream = Stream(spark, lake, definitions, Files(str(folder), "json"))  # type: ignore[arg-type]
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()


@pytest.mark.parametrize("by_id", [False, True])
def test_X6_files_that_were_changed_or_moved_since_they_were_read_are_named_and_counted(
    plain: SparkSession, settings: Settings, tmp_path: Path, *, by_id: bool
) -> None:
    folder, notices = tmp_path / "a folder", list[Notice]()
    folder.mkdir()
    lake = Lake(settings.model_copy(update={"engine": "duckdb"}), notices.append)
    log = replace(RIDES, unknown="ignore", record_id="who") if by_id else HOURLY.log
    definitions = [replace(HOURLY, log=log)]

    def run(*more: str) -> list[FolderChecked]:
        notices.clear()
        for name in more:
            lines(folder / name, [ride(name, 1)])
            os.utime(folder / name, ns=(0, 10**18 + ord(name[0]) * 10**6))
        _drained(plain, lake, folder, definitions)
        return [one for one in notices if isinstance(one, FolderChecked)]

    assert not run("a b.json", "b.json", "c.json")
    with (folder / "a b.json").open("a") as file:
        file.write("{}\n")
    os.utime(folder / "c.json", ns=(0, (folder / "c.json").stat().st_mtime_ns))
    (folder / "b.json").rename(folder / "moved.json")
    (folder / "_made").touch()
    (looked,) = run("d.json")
    moved = () if by_id else ((f"{folder}/b.json", f"{folder}/moved.json"),)
    assert (looked.changed, looked.moved) == ((f"{folder}/a b.json",), moved)
    assert looked.counts == {"changed": 1, "hidden": 1} | ({} if by_id else {"moved": 1})
    assert len(list(_unread(looked))) == 2 - by_id
    assert log_status(lake, "rides").unread == looked.counts

    # What was written anew after the checkpoint was lost knows the times, too.
    (checkpoint,) = Path(settings.checkpoint(settings.namespace, "rides")).iterdir()
    (checkpoint / "metadata").unlink()
    (again,) = run("e.json")
    assert (again.changed, again.moved) == (looked.changed, looked.moved)
    assert Checkpoint(plain, str(checkpoint.parent / f"{int(checkpoint.name) + 1}")).times(0)
