"""A table that goes over to what was built beside it, as both sides of the catalog see it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from tailrace import Count, Max, Sum
from tailrace.lake.catalog.drift import drift
from tailrace.lake.catalog.lake import head_of
from tailrace.lake.catalog.table_protocol import BEGINS
from tailrace.lake.change.generations import (
    GENERATION,
    Contents,
    former_generations,
    generation_of,
    go_over,
    make_beside,
)
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.settings import Settings
from tests.support.lakes.small_lake import HOURLY, LEDGER, append, make

CHANGED = replace(HOURLY, what={"rides": Count(), "total": Sum("price"), "mean_price": Max("price")})
"""A result more, one less, and one of another type."""


def test_a_table_goes_over_with_its_columns_and_back_and_keeps_every_snapshot(
    plain: SparkSession, settings: Settings
) -> None:
    lake = make(settings)
    for contract, changed in (
        (ledger_contract(HOURLY), ledger_contract(CHANGED)),
        (answer_contract(HOURLY), answer_contract(CHANGED)),
    ):
        name, before = contract.table, lake.head(contract.table)
        made = make_beside(lake, changed, f"{name}__g2", {"epoch": "7"})
        columns = {field.name: field.field_id for field in lake.table(name).schema().fields}
        highest = lake.table(name).metadata.last_column_id
        for field in made.schema().fields:
            same = field.name in columns and field.name not in ("mean_price", "fired", "pending")
            assert field.field_id == columns[field.name] if same else field.field_id > highest
        # By Spark, in commits of which one deletes: what was written beside has delete files, too.
        rows = lake.spark_name(f"{name}__g2")
        plain.sql(
            f"INSERT INTO {rows} SELECT {', '.join(_item(n) for n in changed.columns)} FROM {name} "
            "WHERE window_start IS NOT NULL"
        )
        plain.sql(f"DELETE FROM {rows} WHERE city = 'Rome'")
        answered = plain.table(f"{name}__g2").collect()
        old = plain.table(name).collect()
        loaded = lake.table(name)
        number = go_over(loaded, Contents.of(lake.table(f"{name}__g2")), {"epoch": "9"}, {GENERATION: "2"}, 1)
        lake.catalog.drop_table((settings.namespace, f"{name}__g2"))
        assert lake.head(name).snapshot == number
        assert lake.head(name).properties == {"epoch": "9", BEGINS: "true"}
        assert (generation_of(lake.table(name)), former_generations(lake.table(name))) == (2, [1])
        assert drift(lake, changed).differences == ()
        assert sorted(plain.table(name).collect()) == sorted(answered)
        assert len(lake.table(name).scan().to_arrow()) == len(answered)
        # Time travel, by number and by tag, on both sides.
        for version in (str(before.snapshot), "'generation_1'"):
            assert plain.sql(f"SELECT * FROM {name} VERSION AS OF {version}").collect() == old
        assert len(lake.table(name).scan(snapshot_id=before.snapshot).to_arrow()) == len(old)
        # It goes on from there: rows are added, changed and taken away.
        plain.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE city = 'Oslo'")
        assert plain.table(name).count() == 2 * len(answered)
        if name == HOURLY.name:
            plain.sql(f"DELETE FROM {name} WHERE rides = 3")
        # And back.
        loaded = lake.table(name)
        go_over(loaded, Contents.of(loaded, before.snapshot), before.properties, {GENERATION: "3"}, 2)
        assert drift(lake, contract).differences == ()
        assert plain.table(name).collect() == old
        assert head_of(lake.table(name)).properties == {**before.properties, BEGINS: "true"}
        assert former_generations(lake.table(name)) == [1, 2]
        plain.sql(f"INSERT INTO {name} SELECT * FROM {name}")
        assert plain.table(name).count() == 2 * len(old)


def test_a_table_that_somebody_committed_to_does_not_go_over(settings: Settings) -> None:
    lake = make(settings)
    name = ledger_contract(HOURLY).table
    make_beside(lake, ledger_contract(CHANGED), f"{name}__g2", {})
    loaded, schema = lake.table(name), lake.table(name).schema()
    append(lake, name, LEDGER[:1], {"epoch": "3"})
    with pytest.raises(MovedError, match="moved away"):
        go_over(loaded, Contents.of(lake.table(f"{name}__g2")), {}, {}, 1)
    assert lake.head(name).properties == {"epoch": "3"}
    assert lake.table(name).schema() == schema
    assert former_generations(lake.table(name)) == []


def test_a_table_that_has_got_a_column_since_it_was_looked_at_does_not_go_over(settings: Settings) -> None:
    lake = make(settings)
    name = ledger_contract(HOURLY).table
    make_beside(lake, ledger_contract(CHANGED), f"{name}__g2", {})
    loaded, before = lake.table(name), lake.head(name)
    with lake.table(name).update_schema() as update:
        update.add_column("note", StringType())
    with pytest.raises(MovedError, match="moved away"):
        go_over(loaded, Contents.of(lake.table(f"{name}__g2")), {}, {}, 1)
    assert lake.head(name) == before
    assert "note" in lake.table(name).schema().column_names


def _item(name: str) -> str:
    made = {"mean_price": "5L", "total": "6L"}
    if name in ("fired", "pending", "unanswered"):
        return f"NULL AS {name}"
    return f"{made[name]} AS {name}" if name in made else name
