"""Unions of logs: their columns, what is refused, and what they mean."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace import RETRACTING, Count, Fixed, Log, Map, Pipeline, Union, minutes, seconds
from tailrace.model.base.errors import DefinitionError
from tailrace.model.definition.chain import chain
from tailrace.model.samples.visits import example

VIEWS = Log(name="views", columns={"at": "timestamp", "ad": "bigint"}, event_time="at", disorder=seconds(5))
CLICKS = Log(name="clicks", columns={"seen": "timestamp", "ad": "bigint", "cents": "bigint"}, event_time="seen")
DEAR = Map(name="dear", log=CLICKS, what=("ad", "cents"))


def counted(log: Log) -> Pipeline:
    return Pipeline(name="counted", log=log, key="ad", what={"n": Count()}, where=Fixed(minutes(1)))


def faults(**options: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as raised:
        Union(**{"name": "ads", "of": (VIEWS, CLICKS)} | options)
    return [(fault.path, fault.expected) for fault in raised.value.faults]


def test_a_record_of_a_union_has_its_log_s_columns_its_name_and_its_event_time() -> None:
    both = Union(name="ads", of={"seen": VIEWS, "clicked": CLICKS}, tag="what")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    (record,) = both.records("clicked", [{"seen": at, "ad": 7, "cents": 5, "_epoch": 3}])
    assert record == {
        "what": "clicked", "at": None, "ad": 7, "seen": at, "cents": 5, "event_time": at, "_epoch": 3,
    }  # fmt: skip
    assert set(both.columns) == {"what", "at", "ad", "seen", "cents", "event_time"}


def test_a_definition_over_a_union_reads_every_log_and_comes_after_every_definition_in_it() -> None:
    of_both = counted(Union(name="ads", of=(VIEWS, DEAR.produced)))
    assert [log.name for log in of_both.sources] == ["views", "clicks"]
    assert of_both.before == (DEAR,)
    assert [one.name for one in chain(of_both)] == ["dear", "counted"]


def test_what_a_union_is_of_is_part_of_what_a_definition_means() -> None:
    both = Union(name="ads", of=(VIEWS, CLICKS))
    means = counted(both).fingerprint
    assert counted(replace(both, name="other")).fingerprint == means
    assert counted(Union(name="ads", of=(CLICKS, VIEWS))).fingerprint == means
    slower = replace(VIEWS, disorder=seconds(9))
    for other in ({"of": (slower, CLICKS)}, {"of": {"a": VIEWS, "b": CLICKS}}, {"tag": "what"}):
        assert counted(Union(**{"name": "ads", "of": (VIEWS, CLICKS)} | other)).fingerprint != means


def test_every_fault_of_a_union_is_named_at_once() -> None:
    other = Log(name="other", columns={"event_time": "timestamp", "t": "timestamp", "ad": "string"}, event_time="t")
    found = faults(of=(VIEWS, other), tag="ad")
    assert [path for path, _ in found] == [
        "log.tag", "log.tag", "log.of['other'].columns", "log.of['other'].columns",
    ]  # fmt: skip
    assert "bigint, as views has it" in [expected for _, expected in found]


def test_a_union_is_of_two_logs_or_more_of_which_nothing_is_taken_back_and_that_are_kept() -> None:
    assert faults(of=(VIEWS,)) == [("log.of", "two logs or more")]
    assert faults(of="views") == [("log.of", "two logs or more")]
    assert faults(of=(VIEWS, VIEWS)) == [("log.of", "logs, each once")]
    assert faults(name="My Ads", of={"A": VIEWS, "b": CLICKS})[0][0] == "log.name"
    panes = replace(counted(CLICKS), how=RETRACTING).panes
    assert faults(of=(VIEWS, panes))[0] == ("log.of['counted']", "a log of which nothing is taken back")
    both = Union(name="ads", of=(VIEWS, CLICKS))
    assert faults(of=(both, VIEWS), tag="of_log")[0] == ("log.of['ads']", "a log that is no union")
    weak = replace(example(), productions="weak").produced
    assert faults(of=(VIEWS, weak))[0] == (f"log.of['{weak.name}']", "productions that are kept")
