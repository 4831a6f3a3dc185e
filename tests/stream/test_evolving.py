"""Tables change their shape under a stream, a backfill and readers, and every answer comes out as if they had not."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.lake.change.migration import evolve_table
from tailrace.lake.schema.contract_diff import contract_changes
from tailrace.lake.schema.contracts import Column, Contract, log_contract
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.time import BEGINNING
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.lakes.rides import HOURLY, RIDES, Case, within

LOG = replace(RIDES, columns=dict(RIDES.columns) | {"cents": "int"})
PIPELINE = replace(HOURLY, log=LOG)


def waves() -> list[list[Contract]]:
    """The contracts of one table after the other, each a few changes on from the one before."""
    log, ledger, answers = log_contract(LOG), ledger_contract(PIPELINE), answer_contract(PIPELINE)
    note = Column("string", "of another version")
    wide = {**log.columns, "cents": Column("bigint", "in cents")}
    named = {("rider" if name == "who" else name): column for name, column in wide.items()}
    named["rider"] = Column("string", "who rode", was=("who",))
    named["money"] = replace(named.pop("cents"), was=("cents",))
    fronted = {"note": note} | dict(answers.columns)
    return [
        [replace(log, columns={"note": note} | dict(log.columns))],
        [replace(ledger, columns={**ledger.columns, "note": note})],
        [replace(log, columns={"note": note} | wide, partition_by=("day(day)",), sort_by=("who",))],
        [
            replace(ledger, columns={"note": note} | dict(ledger.columns), partition_by=("kind", "day(window_start)")),
            replace(answers, columns={**answers.columns, "note": note}, partition_by=("bucket(2, who)",)),
        ],
        [replace(log, columns={"note": note} | named, partition_by=("bucket(4, rider)",))],
        [replace(answers, columns=fronted, sort_by=("window_start desc",), owner="them")],
    ]


@pytest.mark.slow
def test_X1_a_stream_goes_on_while_its_tables_evolve(plain: SparkSession, settings: Settings, tmp_path: Path) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    running = case.stream(PIPELINE)
    token = case.lake.head("rides").number("token", 0)
    running.start()
    landed: list[tuple[str, int, str]] = []

    def land(place: int) -> None:
        rides = [("a", place, f"0{place}:10"), ("b", 10 * place, f"0{place}:20"), ("a", 1, f"0{max(place - 1, 1)}:30")]
        landed.extend(rides)
        case.land(*rides)
        within(running, lambda: case.lake.head("hourly__ledger").number("epoch") >= case.landed - 1)

    read, stop = list[int](), threading.Event()

    def reader() -> None:
        while not stop.is_set():
            read.append(len(case.lake.table("hourly").scan().to_arrow()))

    beside = threading.Thread(target=reader)
    beside.start()
    try:
        land(1)
        for place, wave in enumerate(waves(), 2):
            for contract in wave:
                done = evolve_table(case.lake, contract)
                assert done.done
                assert not done.left
                assert contract_changes(contract, case.lake.table(contract.table)) == []
            land(place)
        # Every window before is complete by then.
        case.land(("z", 7, "20:00"))
        within(running, lambda: case.lake.head("hourly__ledger").number("epoch") >= case.landed - 1)
    finally:
        stop.set()
        beside.join()
        running.stop()
    running.wait()
    running.close()
    assert case.lake.head("rides").number("token") == token, "nobody took its lease"
    assert len(read) > 5
    assert sorted(read) == read, "a reader never finds fewer answers than before"
    assert case.answers(PIPELINE) == batch(landed)
    assert audit(case.lake, PIPELINE).ok
    # Before the columns were renamed, widened and moved, and after.
    assert replay(case.lake, PIPELINE).ok

    case.lose(PIPELINE, "a")
    plain.sql(f"DELETE FROM {case.lake.spark_name('hourly')} WHERE who = 'a'")
    (ran, *_) = backfill(case.lake, PIPELINE, BEGINNING)
    assert ran.changed
    assert case.answers(PIPELINE) == batch(landed)
    more = [("c", 5, "21:10"), ("c", 6, "21:20")]
    case.land(*more)
    landed += [("z", 7, "20:00"), *more]
    case.drain(PIPELINE)
    assert case.answers(PIPELINE) == batch(landed)
    names = [field.name for field in case.lake.table("rides").schema().fields]
    assert {"rider", "money"} <= set(names)
    assert not {"who", "cents"} & set(names)


def batch(rides: list[tuple[str, int, str]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for who, cents, at in rides:
        n, total = found.get((who, f"{at[:2]}:00"), (0, 0))
        found[who, f"{at[:2]}:00"] = (n + 1, total + cents)
    return found
