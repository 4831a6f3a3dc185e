"""Statements that are planned once give what they would if they were planned for the rows at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.engines.duckdb.connection import connect
from tailrace.engines.duckdb.planned import DEAD, EPOCHS, GROWN, Planned
from tailrace.settings import Settings

PASSED = "SELECT g, x FROM db.rows WHERE x > 5"
SUMS = "SELECT g, COUNT(*) AS n, MAX(x) AS x FROM db.rows GROUP BY g"
JOINED = "SELECT r.g FROM db.rows r WHERE EXISTS (SELECT 1 FROM db.sums s WHERE s.g IS NOT DISTINCT FROM r.g)"


@pytest.fixture
def planned(settings: Settings) -> Iterator[Planned]:
    with connect(settings, 1) as connection:
        one = Planned(connection, "db")
        one.open()
        yield one
        one.close()


def epoch(planned: Planned, rows: str) -> tuple[int, int, list[tuple[object, ...]], list[tuple[object, ...]]]:
    """What an epoch of some rows gives; they are planned anew, as are those that read another's table."""
    planned.fill("rows", f"SELECT g::BIGINT AS g, x::BIGINT AS x FROM (VALUES {rows}) AS v(g, x)")
    passed = planned.fill("passed", PASSED)
    sums = planned.fill("sums", SUMS)
    held = planned.connection.execute("SELECT * FROM db.sums ORDER BY ALL").fetchall()
    joined = planned.asked("joined", JOINED).fetchall()
    if not planned.ready:
        fills = {"passed": f"INSERT INTO db.passed {PASSED}", "sums": f"INSERT INTO db.sums {SUMS}"}
        planned.plan({**fills, "joined": JOINED}, 3)
    return passed, sums, held, sorted(joined, key=repr)


SEVERAL = (
    "(1, 1), (2, 2)",
    "(1, 100), (900000, 7)",
    "(NULL, NULL), (1, 6)",
    "(NULL, 9223372036854775807)",
    "(-9223372036854775808, 1)",
    ", ".join(f"({n % 7}, {n})" for n in range(300)),
)


def test_a_plan_made_for_rows_of_one_kind_is_right_for_those_of_another(planned: Planned) -> None:
    found = [epoch(planned, rows) for rows in SEVERAL]
    assert planned.ready
    anew = []
    for rows in SEVERAL:
        planned.forget()
        anew.append(epoch(planned, rows))
    assert found == anew


def test_a_plan_is_right_when_tables_were_made_meanwhile(planned: Planned) -> None:
    epoch(planned, "(1, 1), (2, 2)")
    planned.connection.execute("CREATE TABLE db.other (a INT)")
    assert epoch(planned, "(1, 100), (NULL, 7)")[0] == 2
    planned.connection.execute("CREATE TABLE other (a INT)")
    assert epoch(planned, "(1, 1), (3, 9)")[0] == 1


def test_plans_go_once_much_was_taken_out_or_an_epoch_outgrows_them(planned: Planned) -> None:
    epoch(planned, "(1, 1)")
    assert planned.fits(GROWN * 1000)
    assert not planned.fits(GROWN * 2000)
    epoch(planned, "(1, 1)")
    assert planned.ready
    planned.died(DEAD + 1)
    assert not planned.fits(1)


def test_an_epoch_of_many_rows_is_not_worth_a_plan(planned: Planned) -> None:
    planned.fill("rows", f"SELECT * FROM range({DEAD // EPOCHS + 1}) AS r(g)")
    planned.plan({"rows": "SELECT 1"}, 1)
    assert not planned.ready


def test_the_setting_that_plans_are_made_with_is_not_left(planned: Planned) -> None:
    planned.plan({"one": "SELECT 1"}, 1)
    assert planned.connection.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [("",)]
    with pytest.raises(Exception, match="no_such"):
        planned.plan({"two": "SELECT * FROM no_such"}, 1)
    assert planned.connection.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [("",)]


def test_what_was_closed_can_be_opened_again(planned: Planned) -> None:
    epoch(planned, "(1, 100)")
    planned.close()
    planned.close()
    planned.open()
    assert epoch(planned, "(1, 100), (2, 7)")[0] == 2
