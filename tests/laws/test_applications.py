"""The definitions in `pipelines/` say what plain SQL says of their log, however it came (L1), in pure Python.

The SQL is run by DuckDB, which knows nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from random import Random

import duckdb
import pyarrow as pa
import pytest

from tailrace import Pipeline
from tailrace.generate.delivery import HOUR
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.samples.sample_records import Epochs, epochs
from tailrace.model.step.reference import backfilled, fold_stages
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import Answers as Folded
from tailrace.model.windows.panes import answers
from tests.support.applications import APPLICATIONS, RECORDS, Answers, Application, once


def queried(application: Application, records: Sequence[Record]) -> Answers:
    """What plain SQL says of some records."""
    happened = application.pipeline.sources[0].event_time
    given = [{**record, "happened": record[happened]} for record in records]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
        connection.register("records", pa.Table.from_pylist(given))
        rows = connection.sql(f"SELECT {application.columns} FROM ({application.by_hand})").fetchall()
    found = application.by_place(rows)
    return {(*key, start.replace(tzinfo=start.tzinfo or UTC)): values for (*key, start), values in found.items()}


def told(application: Application, found: Folded) -> Answers:
    """Answers of the model in the same shape."""
    rows = ((*key, moment(window.start), *values.values()) for (key, window), values in found.items())
    return application.by_place(rows)


def in_any_order(pipeline: Pipeline, records: Sequence[Record], chance: Random) -> Epochs:
    """Records in any order, in epochs of any size, with a watermark that has nothing to do with them."""
    times = sorted(instant(record[pipeline.sources[0].event_time]) for record in records)
    # The last one is of days later. A watermark that ends where no window takes any of the others makes some late.
    first, span = times[0], 2 * (times[-2] - times[0] + pipeline.stages[0].lateness)
    left, found, now, reached = chance.sample(records, len(records)), Epochs(), first, 0.0
    while left:
        size, now = chance.choice([1, len(records) // 30, len(records) // 6]), now + chance.randrange(HOUR // 2)
        reached = max(reached, chance.uniform(0.4, 1) * (1 - len(left) / len(records)))
        found.append((left[:size], Clock(len(found), first + int(reached * span), now)))
        left = left[size:]
    return [*found, ([], Clock(len(found), END_OF_TIME, now + HOUR))]


@pytest.mark.parametrize(("order", "seed"), [("as it came", 2), ("any order", 2), ("any order", 3)])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_L1_the_answers_are_those_of_plain_sql_less_what_was_late_and_of_a_backfill_those_of_all(
    name: str, order: str, seed: int
) -> None:
    application, chance = APPLICATIONS[name], Random(seed)
    pipeline = application.pipeline
    records = once(pipeline.sources[0], RECORDS[application.records].made(0.15, seed))
    if order == "as it came":
        cut = epochs(pipeline.sources[0], records, per_epoch=chance.choice([100, 250]))
    else:
        cut = in_any_order(pipeline, records, chance)
    runs = fold_stages(pipeline, cut)
    late = {id(one.record) for one in runs[0].late}
    assert not any(run.late for run in runs[1:]), "a later stage waits for what is corrected"
    if order == "any order":
        assert len(records) * 0.02 < len(late) < len(records) * 0.98, "some are too late, and some are not"
    in_time = [record for record in records if id(record) not in late]
    assert told(application, answers(runs[-1].panes)) == queried(application, in_time)
    everything = queried(application, records)
    assert everything
    assert told(application, backfilled(pipeline, records, BEGINNING, END_OF_TIME)) == everything
