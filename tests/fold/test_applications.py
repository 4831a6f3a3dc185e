"""The definitions of the use cases on real tables: streamed, backfilled, and beside plain SQL over the logs (L1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.generate.delivery_files import land
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.chain import chain
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.support.cases.applications import APPLICATIONS, RECORDS, once, sources, stretch
from tests.support.checks.pipeline_answers import as_by_hand
from tests.support.depth import deep


@pytest.mark.parametrize(
    ("records", "names"),
    [("ads", ["recommendations", "video_statistics"]), pytest.param("searches", ["log_join"], marks=deep)],
)
def test_L1_a_stream_and_then_a_backfill_say_what_plain_sql_says(
    plain: SparkSession, settings: Settings, tmp_path: Path, records: str, names: list[str]
) -> None:
    applications, source = [APPLICATIONS[name] for name in names], RECORDS[records]
    lake, folder = Lake(settings), tmp_path / "landing"
    made = source.made(share=0.3)
    list(land(made, folder, every=stretch(made, 4), instants=source.instants))
    logs = applications[0].pipeline.sources
    stream = Stream(plain, lake, [one.pipeline for one in applications], sources(logs, folder, per_epoch=1))
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    for log in logs:
        assert plain.table(log.name).count() == len(once(log, made))
    for application in applications:
        as_by_hand(plain, lake, application)
    assert plain.sql(f"SELECT 1 FROM {chain(applications[-1].pipeline)[0].name}__ledger WHERE kind = 'late'").count()
