"""Several tables are read as of one epoch of their log, however far each has followed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace import (
    DISCARDING,
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Pipeline,
    Sum,
    minutes,
)
from tailrace.cli.main import app
from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.engines.duckdb.query import try_duckdb
from tailrace.engines.spark.query import by_spark
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.restoration import restore
from tailrace.lake.read.epoch_reading import EpochError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.windows.panes import Accumulation
from tailrace.settings import Settings
from tailrace.stream.log_stream import Tailing
from tests.support.cases.strategies import BASE, LOG
from tests.support.lakes.recorded_ledgers import no_spark, record

EPOCHS = 4
QUERY = "select place, window_start, n, sum from places order by place, window_start"
COUNTS = (
    "select (select count(*) from trips) as records, (select count(*) from places__panes) as panes, "
    "(select count(*) from places) as answers"
)


def places(how: Accumulation) -> Pipeline:
    when = AfterWatermark(early=AfterCount(2))
    what = {"n": Count(), "sum": Sum("value")}
    log = replace(LOG, percentiles={})
    return Pipeline(name="places", log=log, key="place", what=what, where=Fixed(minutes(1)), when=when, how=how)


def epoch(number: int) -> tuple[Sequence[dict[str, Any]], Clock]:
    rows = [
        {"id": n, "place": "ab"[n % 2], "value": n + number, "at": BASE + timedelta(seconds=20 * number + 25 * n)}
        for n in range(5)
    ]
    last = number == EPOCHS - 1
    watermark = END_OF_TIME if last else instant(BASE + timedelta(seconds=40 * number))
    return rows, Clock(number, watermark, instant(BASE) + number)


def told(lake: Lake) -> list[pa.Table]:
    """Land and fold the epochs one by one; the answers and the counts of rows as they were after each."""
    found = []
    for number in range(EPOCHS):
        record(lake, PLACES[lake.settings.namespace], [epoch(number)])
        found.append((by_duckdb(lake, QUERY).to_pylist(), by_duckdb(lake, COUNTS).to_pylist()))
    return found


PLACES = {"discards": places(DISCARDING), "retracts": places(RETRACTING)}


@pytest.fixture(params=list(PLACES))
def lake(request: pytest.FixtureRequest, settings: Settings) -> Lake:
    return Lake(settings.model_copy(update={"namespace": request.param}))


def test_L2_the_answers_of_an_epoch_are_those_that_were_there_then(lake: Lake) -> None:
    then = told(lake)
    assert len({str(answers) for answers, _ in then}) == EPOCHS
    for number, (answers, counts) in enumerate(then):
        for query, expected in ((QUERY, answers), (COUNTS, counts)):
            assert by_duckdb(lake, query, number).to_pylist() == expected, number
        in_process = try_duckdb(lake, QUERY, number)
        assert not isinstance(in_process, str), in_process
        assert in_process[0].to_pylist() == answers, number


def test_answers_as_of_an_epoch_come_out_on_spark_as_in_the_process(plain: SparkSession, settings: Settings) -> None:
    lake = Lake(settings.model_copy(update={"namespace": "discards"}))
    then = told(lake)
    plain.sql("USE discards")
    assert by_spark(plain, lake, QUERY, 1).to_pylist() == then[1][0]
    assert by_spark(plain, lake, COUNTS, 2).to_pylist() == then[2][1]


def test_after_a_restore_an_epoch_is_the_one_that_took_the_undone_ones_place(lake: Lake) -> None:
    then, pipeline = told(lake), PLACES[lake.settings.namespace]
    restore(lake, [pipeline], 1)
    assert by_duckdb(lake, QUERY, 1).to_pylist() == then[1][0]
    with pytest.raises(EpochError, match="places__ledger has epochs up to 1: pass an --epoch of at most that"):
        by_duckdb(lake, QUERY, 2)
    tailing = Tailing(no_spark, lake, [pipeline])
    tailing.run(once=True)
    tailing.close()
    for number, (answers, _) in enumerate(then):
        assert by_duckdb(lake, QUERY, number).to_pylist() == answers, number


def test_an_epoch_that_is_not_there_is_a_usage_error_on_one_line(settings: Settings) -> None:
    lake = Lake(settings.model_copy(update={"namespace": "discards"}))
    told(lake)
    env = {"TAILRACE_WAREHOUSE": str(settings.warehouse), "TAILRACE_NAMESPACE": "discards"}
    env |= {"TAILRACE_CATALOG_URI": settings.catalog_uri}
    for engine in ("auto", "duckdb"):
        result = CliRunner().invoke(app, ["sql", QUERY, "--epoch", "9", "--engine", engine], env=env)
        assert result.exit_code == 2, result.output
        assert "has epochs up to 3" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["sql", COUNTS, "--epoch", "0", "--engine", "duckdb", "--format", "csv"], env=env)
    assert (result.exit_code, result.stdout) == (0, "records,panes,answers\n5,1,1\n")
