"""Element-wise steps on real tables: whatever makes the columns, the answers are the same; what fails is rejected."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace import RETRACTING, Col, Count, Derive, Each, Fixed, Log, Pipeline, SparkColumns, SparkFrame, Sum, minutes
from tailrace.backfill.backfill import backfill
from tailrace.engines.spark.executions.preparation import StepError
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import instant
from tailrace.model.definition.record_steps import ElementWise, NeedsSparkError
from tailrace.model.step.reference import at_once
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.depth import DEPTH

COLUMNS = {"id": "bigint", "text": "string", "at": "timestamp"}
LINES = Log(name="lines", columns=COLUMNS, event_time="at", disorder=minutes(10))
TEXTS = ["so it goes", "it is so", None, "boom", "", "so so", "goes"]


def split(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    if record["text"] == "boom":
        raise RuntimeError("no such word")
    return [{"word": word} for word in (record["text"] or "").split()]


def exploded(frame: DataFrame) -> DataFrame:
    words = frame.withColumn("word", F.explode(F.split("text", " ")))
    return words.where("word <> '' AND word <> 'boom'")


def lengths(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"length": len(record["word"])}


def measured(frame: DataFrame) -> DataFrame:
    return frame.withColumn("length", F.length("word"))


STEPS: dict[str, tuple[ElementWise, ...]] = {
    "python": (Each(split, {"word": "string"}), Each(lengths, {"length": "bigint"})),
    "frame": (SparkFrame(exploded, {"word": "string"}), SparkColumns({"length": ("bigint", "length(word)")})),
    "mixed": (Each(split, {"word": "string"}), SparkFrame(measured, {"length": "bigint"})),
}


def words(name: str, each: tuple[ElementWise, ...]) -> Pipeline:
    what = {"n": Count(), "letters": Sum("twice")}
    each = (*each, Derive({"twice": Col("length") * 2}))
    return Pipeline(name=name, log=LINES, each=each, key="word", what=what, where=Fixed(minutes(1)), how=RETRACTING)


def test_X6_steps_give_the_same_words_and_what_fails_is_in_the_ledger(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "landing", Lake(settings)
    folder.mkdir()
    records = [
        {"id": place, "text": text, "at": f"2024-01-01T00:{place // 3:02}:0{place % 3}Z"}
        for place, text in enumerate([*TEXTS, *TEXTS])
    ]
    # The last one is there to take the watermark past the others.
    records.append({"id": len(records), "text": "end", "at": "2024-01-01T01:00:00Z"})
    for place in range(0, len(records), 6):
        lines = (json.dumps(one) for one in records[place : place + 6])
        file = folder / f"{place:02}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + place, 1_700_000_000 + place))
    pipelines = [words(f"words_{name}", each) for name, each in STEPS.items()]
    reports = list[EpochReport]()
    stream = Stream(plain, lake, pipelines, Files(str(folder), "json", 1), watch=reports.append)
    stream.start(once=True)
    stream.wait()
    stream.close()
    assert {one.engine for report in reports for one in report.folded.values()} == {"duckdb"}
    columns = "word, window_start, n, letters"
    said = {one.name: plain.sql(f"SELECT {columns} FROM {one.name} ORDER BY ALL").collect() for one in pipelines}
    first, *others = said.values()
    assert len(first) > 5
    assert all(other == first for other in others)
    failed = plain.sql("SELECT reason, source_offset FROM words_python__ledger WHERE kind = 'rejected'").collect()
    assert [row["reason"] for row in failed] == ["RuntimeError: no such word"] * 2
    # What code makes alone, and what it makes with Spark.
    for one in pipelines if DEPTH > 1 else (pipelines[0], pipelines[-1]):
        found = audit(lake, one)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["late"] == 0
        [done] = backfill(lake, one, instant(0), lake.head(f"{one.name}__ledger").number("watermark"))
        assert done.changed == done.retracted == 0
        assert done.untouched == len(first)


def test_what_only_spark_can_take_says_so_where_there_is_none() -> None:
    for each in (STEPS["frame"][0], STEPS["frame"][1]):
        pipeline = Pipeline(name="some", log=LINES, each=each, what={"n": Count()}, where=Fixed(minutes(1)))
        with pytest.raises(NeedsSparkError, match="use Derive or Each to run without Spark"):
            at_once(pipeline, [{"id": 1, "text": "x", "at": instant(0)}])


def test_a_function_of_a_frame_must_keep_its_columns(plain: SparkSession, settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "1.jsonl").write_text('{"id": 1, "text": "x", "at": "2024-01-01T00:00:00Z"}\n')
    wrong = words("wrong", (SparkFrame(lambda frame: frame.select("id"), {"word": "string", "length": "bigint"}),))
    stream = Stream(plain, Lake(settings), [wrong], Files(str(folder), "json", 1))
    stream.start(once=True)
    with pytest.raises(StepError, match=r"wrong: each\[0\] gave id: expected a DataFrame with the columns id"):
        stream.wait()
