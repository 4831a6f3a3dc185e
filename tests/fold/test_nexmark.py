"""The Nexmark queries on real tables: a stream with published answers; streams and backfills beside plain SQL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.nexmark.answers import Events, differences
from benchmarks.nexmark.queries import COLUMNS, Query, Row, beside, query
from benchmarks.ours import deploy
from tailrace.backfill.backfill import backfill_stages
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import LATE, REJECTED
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.step.step import Record
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.support.cases.nexmark import (
    KINDS,
    PUBLISHED,
    generated,
    published,
    published_answer,
    published_windows,
)

DISORDER = 3.9
"""Seconds out of order within which no record is too late."""


def land(folder: Path, records: Iterable[Record], files: int) -> None:
    """Some files of records out of order, the last of them with one that takes the watermark past them all."""
    chance = Random(5)
    order = sorted(records, key=lambda one: one["date_time"].timestamp() + chance.uniform(0, DISORDER))
    order.append({"kind": "end", "date_time": order[-1]["date_time"] + timedelta(minutes=1)})
    size = -(-len(order) // files)
    folder.mkdir()
    for number in range(files):
        some = order[number * size : (number + 1) * size]
        file = folder / f"{number:03}.json"
        file.write_text("".join(json.dumps(one, default=datetime.isoformat) + "\n" for one in some))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def streamed(spark: SparkSession, lake: Lake, definitions: Sequence[Ranged], folder: Path) -> None:
    stream = Stream(spark, lake, definitions, Files(str(folder), per_epoch=1))
    stream.start(once=True)
    stream.wait()
    stream.close()


def answer(spark: SparkSession, one: Query, mark: str = "") -> list[Row]:
    """What its table answers."""
    rows: list[dict[str, Any]] = spark.sql(one.read(mark)).toArrow().to_pylist()
    return list(one.flattened(rows))


def left_out(spark: SparkSession, definition: Definition) -> int:
    """How many records are in none of the answers."""
    return spark.table(f"{definition.name}__ledger").where(f"kind IN ('{LATE}', '{REJECTED}')").count()


def test_a_stream_of_all_queries_answers_what_is_published(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    # An epoch takes some forty stages: there is one. The test below has several.
    land(tmp_path / "landing", published(), files=1)
    sliding = query("q5").pipeline.stages[0]
    lake = Lake(settings)
    lake.ensure(answer_contract(sliding))
    streamed(plain, lake, [query(name).definition for name in COLUMNS], tmp_path / "landing")
    wrong = {}
    for name in COLUMNS.keys() - {"q11"}:
        one = query(name)
        assert not any(left_out(plain, stage) for stage in chain(one.definition))
        if (found := differences(published_answer(one), answer(plain, one))) != ([], []):
            wrong[name] = found
    assert not wrong
    rows = plain.table(sliding.name).select("auction", "window_start", "num").toArrow().to_pylist()
    windows = published_windows("bids_sliding_10s_2s_by_auction")
    assert differences(windows, [tuple(row.values()) for row in rows]) == ([], [])


REPRESENTATIVE = ("q1", "q3", "q5", "q7", "q11", "q17")
"""Rows as they come, totals, each kind of window, a join, what is unpacked, what has to be taken back in Python."""


def test_streams_and_backfills_answer_what_plain_sql_answers(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    lake, made = Lake(settings), generated()
    land(tmp_path / "landing", made, files=2)
    queries = [query(name) for name in REPRESENTATIVE]
    streamed(plain, lake, [one.definition for one in queries], tmp_path / "landing")
    with Events(made) as events:
        expected = {one.name: events.answer(one.name) for one in queries}
    for one in queries:
        assert differences(expected[one.name], answer(plain, one)) == ([], []), f"{one.name} as a stream"
        again = beside(one.definition, "_again")
        for stage in chain(again):
            deploy(lake, stage)
        for _, runs in backfill_stages(lake, again, instant(made[0]["date_time"]) - 10**8, END_OF_TIME):
            assert sum(run.changed for run in runs) > 0
        assert differences(expected[one.name], answer(plain, one, "_again")) == ([], []), f"{one.name} as a backfill"


AUCTIONS = {
    "q3": ("nearby_sellers", "SELECT name, city, state, item FROM nearby_sellers__ledger WHERE kind = 'production'"),
    "q4": ("final_prices", "SELECT category, mean_price FROM prices_of_categories"),
    "q8": ("new_sellers", "SELECT id, name, window_start FROM new_sellers"),
}
"""The definitions over three logs in `pipelines/`, by the query that they are, each with how its answer is read."""


def test_joins_of_three_logs_answer_what_is_published(plain: SparkSession, settings: Settings, tmp_path: Path) -> None:
    chance, sources = Random(8), {}
    for kind in KINDS:
        lines = (PUBLISHED / f"{kind}.jsonl").read_text().splitlines()
        chance.shuffle(lines)
        folder = tmp_path / f"{kind}s"
        folder.mkdir()
        half = chance.randrange(1, len(lines))
        end = {"date_time": "2015-07-15T01:00:00.000Z"} | ({} if kind == "bid" else {"id": -1})
        for number, part in enumerate((lines[:half], [*lines[half:], json.dumps(end)])):
            file = folder / f"{number}.json"
            file.write_text("\n".join(part) + "\n")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        sources[f"{kind}s"] = Files(str(folder), per_epoch=1)
    lake = Lake(settings)
    stream = Stream(plain, lake, [load_any(f"pipelines/{name}.py") for name, _ in AUCTIONS.values()], sources)
    stream.start(once=True)
    stream.wait()
    stream.close()
    for name, (_, text) in AUCTIONS.items():
        found = [tuple(row.values()) for row in plain.sql(text).toArrow().to_pylist()]
        assert differences(published_answer(query(name)), found) == ([], []), name


def test_a_definition_under_another_name_means_the_same() -> None:
    one = query("q5").pipeline
    other = beside(one, "_b", log=True)
    assert [stage.name for stage in other.stages] == ["q5_counts_b", "q5_most_b", "q5_b"]
    assert (other.sources[0].name, replace(other.sources[0], name="nexmark")) == ("nexmark_b", one.sources[0])
    assert [a.what for a in other.stages] == [b.what for b in one.stages]
