"""The definitions in `pipelines/` say what plain SQL says of their logs, however they came (L1), in pure Python.

The SQL is run by DuckDB, which knows nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from random import Random

import duckdb
import pyarrow as pa
import pytest

from tailrace import Join, Log
from tailrace.generate.delivery import HOUR
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.chain import chain
from tailrace.model.samples.sample_records import Epochs, epochs
from tailrace.model.step.chain_fold import Input, fold_chain
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import Answers as Folded
from tailrace.model.windows.panes import answers
from tests.support.cases.applications import APPLICATIONS, RECORDS, Answers, Application, once
from tests.support.checks.batch_answers import backfilled


def queried(application: Application, records: Mapping[str, Sequence[Record]]) -> Answers:
    """What plain SQL says of some records of each log, by its name."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
        for view, log in application.views.items():
            given = [{**record, "happened": record[log.event_time]} for record in records[log.name]]
            connection.register(view, pa.Table.from_pylist(given))
        rows = connection.sql(f"SELECT {application.columns} FROM ({application.by_hand})").fetchall()
    found = application.by_place(rows)
    return {(*key, start.replace(tzinfo=start.tzinfo or UTC)): values for (*key, start), values in found.items()}


def told(application: Application, found: Folded) -> Answers:
    """Answers of the model in the same shape."""
    rows = ((*key, moment(window.start), *values.values()) for (key, window), values in found.items())
    return application.by_place(rows)


def in_any_order(log: Log, lateness: int, records: Sequence[Record], chance: Random) -> Epochs:
    """Records in any order, in epochs of any size, with a watermark that has nothing to do with them."""
    times = sorted(instant(record[log.event_time]) for record in records)
    # The last one is of days later. A watermark that ends where no window takes any of the others makes some late.
    first, span = times[0], 2 * (times[-2] - times[0] + lateness)
    left, found, now, reached = chance.sample(records, len(records)), Epochs(), first, 0.0
    while left:
        size, now = chance.choice([1, len(records) // 30, len(records) // 6]), now + chance.randrange(HOUR // 2)
        reached = max(reached, chance.uniform(0.4, 1) * (1 - len(left) / len(records)))
        found.append((left[:size], Clock(len(found), first + int(reached * span), now)))
        left = left[size:]
    return [*found, ([], Clock(len(found), END_OF_TIME, now + HOUR))]


ORDERS = pytest.mark.parametrize(("order", "seed"), [("as it came", 2), ("any order", 2), ("any order", 3)])


@ORDERS
@pytest.mark.parametrize("name", [one.name for one in APPLICATIONS.values() if len(one.views) == 1])
def test_L1_the_answers_are_those_of_plain_sql_less_what_was_late_and_of_a_backfill_those_of_all(
    name: str, order: str, seed: int
) -> None:
    application, chance = APPLICATIONS[name], Random(seed)
    pipeline = application.pipeline
    (log,) = pipeline.sources
    records = once(log, RECORDS[application.records].made(0.15, seed))
    if order == "as it came":
        cut = epochs(log, records, per_epoch=chance.choice([100, 250]))
    else:
        cut = in_any_order(log, pipeline.stages[0].lateness, records, chance)
    runs = fold_stages(pipeline, cut)
    late = {id(one.record) for one in runs[0].late}
    assert not any(run.late for run in runs[1:]), "a later stage waits for what is corrected"
    if order == "any order":
        assert len(records) * 0.02 < len(late) < len(records) * 0.98, "some are too late, and some are not"
    in_time = [record for record in records if id(record) not in late]
    assert told(application, answers(runs[-1].panes)) == queried(application, {log.name: in_time})
    everything = queried(application, {log.name: records})
    assert everything
    assert told(application, backfilled(pipeline, records, BEGINNING, END_OF_TIME)) == everything


def together(logs: Mapping[str, Epochs]) -> list[Mapping[str, Input]]:
    """The epochs of several logs as cuts over all of them; a log that has come to its end has no records any more."""
    found: list[Mapping[str, Input]] = []
    for epoch in range(max(map(len, logs.values()))):
        parts = {name: of[epoch] if epoch < len(of) else ([], of[-1][1]) for name, of in logs.items()}
        found.append({name: (records, replace(clock, epoch=epoch)) for name, (records, clock) in parts.items()})
    return found


@ORDERS
def test_L1_the_answers_over_a_join_are_those_of_plain_sql_less_what_was_late_and_of_all_at_once_those_of_all(
    order: str, seed: int
) -> None:
    application, chance = APPLICATIONS["log_join"], Random(seed)
    pipeline, made = application.pipeline, RECORDS[application.records].made(0.15, seed)
    (join, _) = chain(pipeline)
    assert isinstance(join, Join)
    records = {
        log.name: [one | {"_source": log.name, "_offset": place} for place, one in enumerate(once(log, made))]
        for log in pipeline.sources
    }
    size = chance.choice([100, 250])
    runs = fold_chain(
        pipeline,
        together(
            {
                log.name: epochs(log, records[log.name], per_epoch=size)
                if order == "as it came"
                else in_any_order(log, join.lateness, records[log.name], chance)
                for log in pipeline.sources
            }
        ),
    )
    late = {one.record.place[1:] for one in runs[0].late_for_join}
    assert not runs[1].late, "it waits for the clicks whose query may come"
    count = sum(map(len, records.values()))
    if order == "any order":
        assert count * 0.02 < len(late) < count * 0.98, "some are too late, and some are not"
    in_time = {
        name: [one for one in of if (one["_source"], one["_offset"]) not in late] for name, of in records.items()
    }
    assert told(application, answers(runs[-1].panes)) == queried(application, in_time)
    everything = queried(application, records)
    assert any(key[0] is None for key in everything)
    whole = fold_chain(pipeline, [{name: (of, Clock(0, END_OF_TIME, 0)) for name, of in records.items()}])
    assert told(application, answers(whole[-1].panes)) == everything
