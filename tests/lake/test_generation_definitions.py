"""What a changed definition comes to, part by part, and what `tailrace plan` says of it; no JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import StringType
from typer.testing import CliRunner

from tailrace import (
    ACCUMULATING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Match,
    Max,
    Mean,
    Pipeline,
    SparkColumns,
    Sum,
    hours,
    minutes,
)
from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING, why_answers_differ
from tailrace.lake.change.generations import align_ids
from tailrace.lake.change.migration import fit_log
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import PLACES
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.fingerprint import Change, change, decode_meaning, differing_parts, encode_meaning
from tailrace.model.definition.wider_types import with_types
from tailrace.settings import Settings
from tests.support.lakes.small_lake import HOURLY, RIDES, append, make

BOTH = dict(HOURLY.what)
WIDE = replace(RIDES, columns={**RIDES.columns, "km": "bigint"})


@pytest.mark.parametrize(
    ("after", "comes_to", "parts"),
    [
        (HOURLY, Change.NOTHING, set()),
        (replace(HOURLY, name="other"), Change.NOTHING, set()),
        (replace(HOURLY, what=BOTH | {"total": Sum("price")}), Change.NEW_COLUMNS, {"what"}),
        (replace(HOURLY, what={"rides": Count()}), Change.BREAKING, {"what"}),
        (replace(HOURLY, what=BOTH | {"rides": Count("price")}), Change.BREAKING, {"what"}),
        (replace(HOURLY, when=AfterWatermark(early=AfterCount(3), late=AfterCount(1))), Change.FIRES, {"when"}),
        (replace(HOURLY, how=ACCUMULATING), Change.FIRES, {"how"}),
        (replace(HOURLY, allowed_lateness=hours(5)), Change.FIRES, {"lateness"}),
        (replace(HOURLY, log=replace(RIDES, disorder=minutes(5))), Change.FIRES, {"watermark"}),
        (replace(HOURLY, on_time="if_non_empty", closing="always"), Change.FIRES, {"on_time", "closing"}),
        (replace(HOURLY, how=ACCUMULATING, what=BOTH | {"most": Max("price")}), Change.FIRES, {"how", "what"}),
        (replace(HOURLY, where=Fixed(minutes(30))), Change.BREAKING, {"where"}),
        (replace(HOURLY, key=()), Change.BREAKING, {"key"}),
        (replace(HOURLY, keep=Match("price", ">", 3)), Change.BREAKING, {"keep"}),
        (replace(HOURLY, log=replace(RIDES, columns={**RIDES.columns, "km": "bigint"})), Change.NOTHING, set()),
        (replace(HOURLY, log=WIDE, what=BOTH | {"longest": Max("km")}), Change.NEW_COLUMNS, {"what"}),
        (replace(HOURLY, log=replace(RIDES, columns={**RIDES.columns, "price": "int"})), Change.BREAKING, {"columns"}),
    ],
)  # fmt: skip
def test_a_changed_definition_is_told_by_its_parts(after: Pipeline, comes_to: Change, parts: set[str]) -> None:
    was, now = (decode_meaning(encode_meaning(one.meaning)) for one in (HOURLY, after))
    assert change(was, now) is comes_to
    assert set(differing_parts(was, now)) == parts
    assert (after.fingerprint == HOURLY.fingerprint) == (comes_to is Change.NOTHING)


def test_a_definition_of_which_no_parts_are_kept_is_changed_and_no_more_is_known() -> None:
    assert change(None, decode_meaning(encode_meaning(HOURLY.meaning))) is Change.UNKNOWN


def test_columns_that_stay_keep_their_ids_and_no_id_comes_to_mean_another_column() -> None:
    before = iceberg_schema(ledger_contract(HOURLY))
    more = ledger_contract(replace(HOURLY, what={"rides": Count(), "mean_price": Sum("price"), "total": Mean("price")}))
    highest = before.highest_field_id
    made = align_ids(iceberg_schema(more), before, highest)
    there = {field.name: field.field_id for field in before.fields}
    moved = {field.name for field in made.fields if field.field_id != there.get(field.name)}
    assert moved == {"mean_price", "total", "unanswered", "fired", "pending"}
    assert len({*made._lazy_id_to_name}) == len(made._lazy_id_to_name)
    ids = [number for number in made._lazy_id_to_name if number > highest]
    assert len(ids) == len(made._lazy_id_to_name) - (len(there) - 3 + _inner(made, there))


def _inner(made: Any, there: dict[str, int]) -> int:
    """How many fields of structs stay with their columns."""
    return sum(
        len(getattr(field.field_type, "fields", ())) for field in made.fields if field.field_id == there.get(field.name)
    )


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    made = make(settings)
    loaded = made.table("hourly_rides__ledger")
    with loaded.transaction() as changes:
        changes.set_properties({MEANING: encode_meaning(HOURLY.meaning)})
    return made


def planned(tmp_path: Path, change: str) -> dict[str, Any]:
    file = tmp_path / "changed.py"
    imports = "from dataclasses import replace\nfrom tailrace import *\n"
    imports += "from tests.support.lakes.small_lake import HOURLY as H\n"
    file.write_text(f"{imports}p = replace(H, {change})\ndel H\n")
    found = CliRunner().invoke(app, ["plan", str(file), "--json"])
    assert found.exit_code == 0, found.output
    text = CliRunner().invoke(app, ["plan", str(file)])
    assert text.exit_code == 0
    data: dict[str, Any] = json.loads(found.stdout)
    return data | {"text": text.stdout}


def test_plan_says_what_differs_what_is_to_be_read_and_what_it_would_take(lake: Lake, tmp_path: Path) -> None:
    before = {name: lake.table(name).metadata_location for name in ("hourly_rides__ledger", "rides", "hourly_rides")}
    found = planned(tmp_path, "where=Fixed(minutes(30))")
    assert found["change"] == "breaking"
    assert found["parts"] == {"where": {"was": "Fixed(hours(1))", "is": "Fixed(minutes(30))"}}
    assert (found["log"]["records"], found["log"]["epochs"]) == (2, [2, 2])
    assert found["log"]["event_time"] == ["2026-01-01T09:00:00Z", "2026-01-01T13:30:00Z"]
    assert (found["generation"], found["left"], found["refused"], found["readers"]) == (1, [], None, [])
    assert found["estimate"]["measured_by"] is None
    for said in ("breaking", "2 records", "2026-01-01T09:00Z to", "none before 2 is in it", "tailrace apply"):
        assert said in " ".join(found["text"].split())
    assert before == {name: lake.table(name).metadata_location for name in before}, "nothing was changed"


def test_plan_goes_by_what_the_lakes_own_runs_took(lake: Lake, tmp_path: Path) -> None:
    runs = Runs(lake, HOURLY)
    run = runs.start("apply", BEGINNING, END_OF_TIME, log_epoch=2)
    runs.note(run, status="committed")
    assert planned(tmp_path, "how=ACCUMULATING")["estimate"]["measured_by"] == run.run


def test_plan_says_why_a_definition_cannot_be_applied(lake: Lake, tmp_path: Path) -> None:
    columns = 'log=replace(H.log, columns=dict(H.log.columns) | {"km": "bigint"})'
    assert "add column km (bigint)" in planned(tmp_path, f"{columns}, what={{'far': Max('km')}}")["refused"]
    assert planned(tmp_path, f"{columns}, how=ACCUMULATING")["refused"] is None
    append(lake, "hourly_rides__ledger", [], {**lake.head("hourly_rides__ledger").properties, "onward": "0"})
    assert "a later stage reads the panes" in planned(tmp_path, "how=ACCUMULATING")["refused"]


def test_plan_of_what_is_there_already_and_of_what_is_not_there_at_all(lake: Lake, tmp_path: Path) -> None:
    same = planned(tmp_path, "name='hourly_rides'")
    assert (same["change"], same["estimate"]) == ("nothing", None)
    assert planned(tmp_path, "name='elsewhere'")["change"] == "new"


def test_V6_plan_says_which_columns_a_definition_does_not_use(lake: Lake, tmp_path: Path) -> None:
    wider = planned(tmp_path, 'log=replace(H.log, columns=dict(H.log.columns) | {"km": "bigint"}, grows=True)')
    assert (wider["change"], wider["unused"]) == ("nothing", ["km"])
    assert "km of log rides: a change of these columns changes nothing" in " ".join(wider["text"].split())
    with lake.table("rides").update_schema() as update:
        update.add_column("tip", StringType())
    assert planned(tmp_path, "name='hourly_rides'")["unused"] == ["tip"]


def test_V6_plan_says_which_columns_got_wider_types(lake: Lake, tmp_path: Path) -> None:
    narrow = with_types(HOURLY, {"rides": {"price": "int"}})
    append(lake, "hourly_rides__ledger", [], {**lake.head("hourly_rides__ledger").properties, **named(narrow)})
    with lake.table("hourly_rides__ledger").transaction() as changes:
        changes.set_properties({MEANING: encode_meaning(narrow.meaning)})
    found = planned(tmp_path, "name='hourly_rides'")
    assert (found["change"], found["differ"]) == ("nothing", None)
    assert found["wider"] == {"price": {"was": "int", "is": "bigint"}}
    assert "price (int to bigint): the answers stay" in " ".join(found["text"].split())
    more = planned(tmp_path, "how=ACCUMULATING")
    assert (more["change"], more["wider"]) == ("breaking", {})


def test_V6_plan_says_which_columns_have_another_place(lake: Lake, tmp_path: Path) -> None:
    places = 'log=replace(H.log, fields={"price": "fare.price", "at": "seen"})'
    assert planned(tmp_path, places)["placed"] == {}, "a table of an earlier version does not say where they were"
    fit_log(lake, replace(RIDES, fields={"price": "price_cents"}))
    assert lake.table("rides").properties[PLACES] == '{"price": "price_cents"}'
    found = planned(tmp_path, places)
    assert found["change"] == "nothing"
    moved = {"at": {"was": "at", "is": "seen"}, "price": {"was": "price_cents", "is": "fare.price"}}
    assert found["placed"] == moved
    assert "price from fare.price (it was price_cents)" in " ".join(found["text"].split())
    fit_log(lake, RIDES)
    assert planned(tmp_path, "name='hourly_rides'")["placed"] == {}


def named(pipeline: Pipeline) -> dict[str, str]:
    return {"fingerprint": pipeline.fingerprint}


class _Wide(Sum):
    """A combiner of a user, which may compute with the type of its column."""


def test_V6_code_that_sees_types_needs_a_new_generation() -> None:
    own = replace(HOURLY, what={"total": _Wide("price")})
    spark = replace(HOURLY, each=SparkColumns({"half": ("double", "price / 2")}))
    for definition, why in ((own, "the combiner _Wide of total"), (spark, "the step SparkColumns")):
        narrow = with_types(definition, {"rides": {"price": "int"}})
        assert why_answers_differ(narrow, definition) == f"{why} may see the types of columns"
    assert why_answers_differ(with_types(HOURLY, {"rides": {"price": "int"}}), HOURLY) is None
    shorter = with_types(HOURLY, {"rides": {"city": "int"}})
    assert why_answers_differ(shorter, HOURLY) == (
        "column city of hourly_rides__ledger would have type string, and it has int"
    )


def test_plan_of_an_older_lake_says_that_it_changed_but_not_in_which_part(lake: Lake, tmp_path: Path) -> None:
    with lake.table("hourly_rides__ledger").transaction() as changes:
        changes.remove_properties(MEANING)
    found = planned(tmp_path, "how=ACCUMULATING")
    assert (found["change"], found["parts"]) == ("unknown", {})
    assert "not say in which part" in " ".join(found["text"].split())
