"""Maps that make no sense are refused with every fault; what goes out of one is a log that another may read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace import Col, Count, DefinitionError, Derive, Each, Fixed, Log, Map, Match, Pipeline, minutes, seconds
from tailrace.lake.schema.owned_tables import all_contracts
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import EPOCH
from tailrace.model.definition.chain import chain
from tailrace.model.definition.map import step
from tailrace.model.step.chain_fold import fold_chain
from tailrace.plan.loader import LoadError, load, load_ranged
from tailrace.sql.records.selections import query_steps
from tailrace.sql.terms import Relation
from tests.support.cases.clicks import VISITS

SALES = Log(
    name="sales",
    columns={"at": "timestamp", "cents": "bigint", "kind": "string", "watermark": "string"},
    event_time="at",
    disorder=seconds(5),
)
EUROS = Map(name="euros", log=SALES, each=Derive({"euros": Col("cents") // 100}), what=("euros",))


def faults(**given: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as refused:
        replace(EUROS, **given)
    return [(fault.path, fault.remedy) for fault in refused.value.faults]


def test_every_fault_of_a_map_is_named_at_once() -> None:
    found = faults(name="Euros", keep=Match("cent", ">", 1), what=("kind", "euro", "euros", "euros"))
    assert [path for path, _ in found] == ["name", "keep.column", "what[0]", "what[1]", "what"]
    # All columns go out where none is named, and these are names of the ledger's own.
    assert [path for path, _ in faults(what=())] == ["what[2]", "what[3]"]
    assert [path for path, _ in faults(each=Derive({"cents": Col("cents") * 2}))] == ["each[0].values['cents']"]
    assert [path for path, _ in faults(log="sales")] == ["log"]


def test_panes_are_refused_with_what_to_write_instead() -> None:
    hourly = Pipeline(name="hourly", log=SALES, what={"n": Count()}, where=Fixed(minutes(1)))
    assert faults(log=hourly.panes) == [
        ("log", "read the log that hourly reads, or write the steps into a Pipeline over hourly.panes")
    ]


def test_what_is_not_kept_cannot_be_taken_again() -> None:
    weak = replace(VISITS, productions="weak")
    Map(name="some", log=weak.produced, keep=Match("clicks", ">", 1))
    with pytest.raises(DefinitionError, match='leave productions="weak" out of visits'):
        Map(name="some", log=weak.produced, each=Each(lambda record: {"n": 1}, {"n": "int"}))


def test_what_goes_out_is_a_log_and_no_record_is_late() -> None:
    dear = Map(name="dear", log=EUROS.produced, keep=Match("euros", ">", 1))
    assert dict(dear.produced.columns) == {"euros": "bigint", "event_time": "timestamp"}
    by_minute = Pipeline(name="by_minute", log=dear.produced, what={"n": Count()}, where=Fixed(minutes(1)))
    assert [one.name for one in chain(by_minute)] == ["euros", "dear", "by_minute"]
    records = [{"at": EPOCH, "cents": cents, "kind": None, "watermark": None} for cents in (100, 200, 300)]
    epochs = [([records[0]], Clock(0, 10**9, 0)), (records[1:], Clock(1, 10**9, 0))]
    first, second, last = fold_chain(by_minute, epochs)
    assert [one.values["euros"] for one in first.mapped] == [1, 2, 3]
    assert [one.values["euros"] for one in second.mapped] == [2, 3]
    # The pipeline judges them by the watermark that the maps give on.
    assert len(last.late) == 2
    with pytest.raises(ClockError):
        fold_chain(EUROS, [([], Clock(0, 1, 1)), ([], Clock(1, 0, 1))])


def test_a_map_over_one_that_makes_several_records_of_one_has_several_too() -> None:
    parts = replace(EUROS, each=Each(lambda record: [{"euros": 1}] * 2, {"euros": "bigint"}))
    assert not EUROS.multiplies
    assert parts.multiplies
    assert Map(name="more", log=Map(name="some", log=parts.produced).produced).multiplies


def test_its_tables_are_a_ledger_and_the_runs_and_none_of_answers() -> None:
    tables = {contract.table: contract for contract in all_contracts(EUROS)}
    assert set(tables) == {
        *("sales", "sales__rejected", "sales__commits", "sales__rejected__commits"),
        *("euros__ledger", "euros__runs", "euros__commits"),
    }
    assert "window_start" not in tables["euros__ledger"].columns


def test_what_it_means_is_what_it_gives_and_not_its_name() -> None:
    assert replace(EUROS, name="other").fingerprint == EUROS.fingerprint
    tenths = Derive({"euros": Col("cents") // 10})
    dear, both = replace(EUROS, keep=Match("cents", ">", 1)), replace(EUROS, what=("euros", "cents"))
    for other in (dear, both, replace(EUROS, each=tenths)):
        assert other.fingerprint != EUROS.fingerprint


def test_steps_that_are_no_code_of_ones_own_are_one_query() -> None:
    twice = replace(EUROS, each=[*EUROS.each, Derive({"more": Col("euros") // 2})])
    text = query_steps(twice, Relation("bundle"), [*twice.log.columns])
    assert text is not None
    assert text.count("FROM") == 2
    assert (
        query_steps(replace(EUROS, each=Each(dict, {"euros": "bigint"})), Relation("bundle"), [*EUROS.log.columns])
        is None
    )


def test_a_record_that_a_step_cannot_take_is_rejected_and_the_others_go_on() -> None:
    halves = replace(EUROS, each=Each(lambda record: {"euros": 100 // record["cents"]}, {"euros": "bigint"}))
    made, rejected = step(halves, [{"at": EPOCH, "cents": cents} for cents in (0, 50)], 3)
    assert [one.values["euros"] for one in made] == [2]
    reason = "ZeroDivisionError: integer division or modulo by zero"
    assert [(one.reason, one.epoch) for one in rejected] == [(reason, 3)]


def test_a_command_for_windows_says_that_a_map_has_none(tmp_path: Path) -> None:
    file = tmp_path / "euros.py"
    file.write_text("from tests.model.test_map_definitions import EUROS\n")
    assert load_ranged(str(file)) == EUROS
    with pytest.raises(LoadError, match=re.escape("euros is a map, and has no windows: expected a Pipeline")):
        load(str(file))
