"""Whatever becomes of Spark's checkpoint, the log says how far its source was read (rules X2, X3)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, minutes
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.settings import Settings
from tailrace.stream.checkpoint_repair import checkpoint_folder
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

CLICKS = Log(name="clicks", columns={"who": "string", "at": "timestamp"}, event_time="at", disorder=minutes(5))
COUNTED = Pipeline(
    name="counted", log=CLICKS, key="who", what={"n": Count()}, where=Fixed(minutes(10)),
    when=AfterWatermark(late=AfterCount(1)), allowed_lateness=minutes(30),
)  # fmt: skip


class Drop:
    """Files that land, two records in each, and the stream that takes them, one file an epoch."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self.spark, self.lake, self.folder, self.count = spark, Lake(settings), folder, 0
        folder.mkdir()

    @property
    def checkpoint(self) -> Path:
        """Of the last writer; no other has one left."""
        (found,) = (path for path in Path(checkpoint_folder(self.lake, CLICKS)).iterdir() if path.name.isdigit())
        return found

    def land(self, files: int) -> None:
        for _ in range(files):
            rows = [{"who": who, "at": f"2026-01-01T{self.count // 6:02}:{self.count % 6 * 10:02}:00Z"} for who in "ab"]
            # A name with signs that Spark's own list of files encodes.
            file = self.folder / f"drop {self.count:03} é+%25.json"
            lines = [json.dumps(row) for row in rows] + ["{"] * (self.count == 4)
            file.write_text("\n".join(lines) + "\n")
            os.utime(file, (1_700_000_000 + self.count, 1_700_000_000 + self.count))
            self.count += 1

    def writer(self) -> Stream:
        return Stream(self.spark, self.lake, [COUNTED], Files(str(self.folder), "json", 1))

    def stream(self) -> str | None:
        one = self.writer()
        one.start(once=True)
        one.wait()
        one.close()
        return one.mended

    def check(self, *, moved: bool = False) -> None:
        """Every record was read once; only of tables that were `moved` the audit finds anything."""
        found = audit(self.lake, COUNTED)
        wrong = [check for check in found.checks if not check.ok]
        assert [check.name for check in wrong] == (["every commit is this lake's own"] if moved else []), wrong
        assert (found.counts["records"], found.counts["rejected"]) == (2 * self.count, int(self.count > 4))
        files = self.spark.sql("SELECT COUNT(DISTINCT _source) FROM clicks").collect()[0][0]
        assert files == self.count


def cut(file: Path) -> None:
    """Cut a file off at the end of a line, where what is left is whole in itself."""
    text = file.read_text()
    file.write_text(text[: text.rindex("\n")])


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def compacted(folder: Path) -> Path:
    """The last of Spark's lists of all the files so far."""
    return max((folder / "sources/0").glob("*.compact"), key=lambda file: int(file.stem))


def cut_bytes(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "lost": (shutil.rmtree, "is lost"),
    "without an id": (lambda folder: (folder / "metadata").unlink(), "is lost"),
    "with a broken id": (lambda folder: cut_bytes(folder / "metadata"), "is damaged (metadata: "),
    "with a plan cut off": (lambda folder: cut(newest(folder / "offsets")), "is damaged (offsets/"),
    "with an empty plan": (lambda folder: newest(folder / "offsets").write_text(""), "is damaged (offsets/"),
    "without its last plan": (lambda folder: newest(folder / "offsets").unlink(), "is older than the log"),
    "without its last plans": (lambda folder: shutil.rmtree(folder / "offsets"), "is older than the log"),
    "with a commit cut off": (lambda folder: cut(newest(folder / "commits")), "is damaged (commits/"),
    "with a list of files cut off": (lambda folder: cut(compacted(folder)), "is damaged (sources/0/"),
    "without a list of files": (lambda folder: compacted(folder).unlink(), "is damaged (sources/0/"),
}


def test_X2_whatever_is_wrong_with_the_checkpoint_every_record_is_read_once(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    drop = Drop(plain, settings, tmp_path / "landing")
    drop.land(11)
    assert drop.stream() is None
    for damage, said in DAMAGE.values():
        damage(drop.checkpoint)
        drop.land(1)
        mended = drop.stream()
        assert mended is not None
        assert mended.startswith(said)
    drop.check()


def test_X2_an_older_copy_of_the_checkpoint_passes_nothing_over(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    drop, copy = Drop(plain, settings, tmp_path / "landing"), tmp_path / "copy"
    drop.land(3)
    drop.stream()
    shutil.copytree(drop.checkpoint, copy)
    drop.land(4)
    drop.stream()
    now = drop.checkpoint
    shutil.rmtree(now)
    shutil.copytree(copy, now)
    drop.land(3)
    assert drop.stream() == "is older than the log"
    drop.check()


def test_X2_a_log_that_went_back_is_read_on_from_where_it_is(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    drop = Drop(plain, settings, tmp_path / "landing")
    drop.land(3)
    drop.stream()
    kept = {
        name: drop.lake.head(name).snapshot for name in ("clicks", "clicks__rejected", "counted__ledger", "counted")
    }
    drop.land(3)
    drop.stream()
    for name, snapshot in kept.items():
        plain.sql(f"CALL {settings.catalog}.system.rollback_to_snapshot('{settings.namespace}.{name}', {snapshot})")
    assert drop.stream() == "is ahead of the log"
    # The audit tells that somebody moved the tables, and nothing else.
    drop.check(moved=True)


def test_X1_a_stream_that_was_fenced_off_writes_nothing_that_the_one_after_it_reads(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    drop = Drop(plain, settings, tmp_path / "landing")
    drop.land(2)
    zombie = drop.writer()
    zombie.start()
    while zombie.epoch < 1:
        zombie.wait(1)
    heir = drop.writer()
    drop.land(2)
    with pytest.raises(FencedError, match="another stream took the lease"):
        zombie.wait(60)
    heir.start(once=True)
    heir.wait()
    heir.close()
    assert heir.mended is None, "it goes on with what the other one left"
    drop.check()
    drop.land(1)
    assert drop.stream() is None
    drop.check()
    assert drop.checkpoint.name == str(drop.lake.head("clicks").number("token")), "nothing is left of the others"


def test_X2_a_log_that_does_not_say_how_far_it_was_read_is_not_gone_on_with(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    drop = Drop(plain, settings, tmp_path / "landing")
    drop.land(1)
    drop.stream()
    head = drop.lake.head("clicks")
    drop.lake.mark("clicks", {name: said for name, said in head.properties.items() if name != "offset"}, head.snapshot)
    with pytest.raises(StreamError, match="does not say offset of how far its source was read"):
        drop.stream()
