"""A failing test prints what differs, whole, and a test needs neither a lake nor Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.testing import plugin
from tests.testing import rides

pytest_plugins = ["pytester"]

TEST = """
from tailrace.testing import any_order, fold
from %RIDES import HOURLY, ride

GIVEN = fold(HOURLY, [ride("09:10"), ride("10:30", 5), ride("12:00", 7, "Rome")])


def test_passes():
    assert GIVEN.answers == "cents \\n 1 \\n 5 \\n 7"


def test_fails_short():
    assert GIVEN.answers == "city cents \\n Paris 1 \\n Paris 5"


def test_fails_long():
    assert GIVEN == '''
        city   window                  cents  epoch
        Paris  2026-03-01T09:00/10:00  2      1
        Paris  2026-03-01T10:00/11:00  5      2
        Rome   2026-03-01T12:00/13:00  7      2
        Oslo   2026-03-01T12:00/13:00  1      2
    '''


def test_another_failure_prints_no_difference():
    assert 1 == 2


def test_rows_of_two_folds():
    assert GIVEN.answers == fold(HOURLY, [ride("09:10")]).answers


def test_checked():
    GIVEN.answers.check("cents \\n 5 \\n 7 \\n 1")
    GIVEN.answers.where(cents=1).check("city cents \\n Paris 2")


def test_unreadable():
    assert GIVEN.answers == "town"


def test_order():
    any_order(HOURLY, [ride("09:10"), ride("12:00")], within=HOURLY.log.disorder * 20)
"""


def test_a_failing_test_prints_what_is_missing_extra_and_different(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rides=TEST.replace("%RIDES", rides.__name__))
    done = pytester.runpytest_inprocess("-p", plugin.__name__, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=7)
    done.stdout.fnmatch_lines(
        [
            "*_ test_fails_short _*",
            "E       assert the answers of hourly_rides == the table",
            "E         2 equal, 1 extra",
            "E         - in the table   + the answers of hourly_rides",
            "E            city  cents",
            "E         +  Rome  7      extra",
            "*_ test_fails_long _*",
            "E       assert what hourly_rides gives == the table",
            "E         1 equal, 1 differing, 2 missing, 1 extra: see below",
            "*- what differs -*",
            "what hourly_rides gives == the table: 1 equal, 1 differing, 2 missing, 1 extra",
            "- in the table   + what hourly_rides gives",
            "   city   window                  cents  epoch",
            "-  Paris  2026-03-01T09:00/10:00  2      1",
            "+  Paris  2026-03-01T09:00/10:00  1      1      differs in cents",
            "-  Rome   2026-03-01T12:00/13:00  7      2      missing",
            "-  Oslo   2026-03-01T12:00/13:00  1      2      missing",
            "+  Rome   2026-03-01T12:00/13:00  7      3      extra",
            "*_ test_another_failure_prints_no_difference _*",
            "*_ test_rows_of_two_folds _*",
            "E       assert the answers of hourly_rides == the answers of hourly_rides",
            "E         1 equal, 2 extra",
            "*_ test_checked _*",
            ">       GIVEN.answers.where(cents=1).check(*",
            "E*RowsError: the answers of hourly_rides != the table",
            "E       1 differing",
            "E       - in the table   + the answers of hourly_rides",
            "E          city   cents",
            "E       -  Paris  2",
            "E       +  Paris  1      differs in cents",
            "*_ test_unreadable _*",
            "E*the header = 'town': expected one of city, window, window_start, window_end, rides, cents*",
            "*_ test_order _*",
            "E*OrderError: the answers of hourly_rides depend on the order or the cut of its records (seed 0)",
            "E*2 of 2 records are enough, in this order:",
        ]
    )
    assert str(done.stdout).count("- what differs -") == 1


def test_folds_need_neither_duckdb_nor_hypothesis_nor_pytest_nor_pyarrow() -> None:
    text = "\n".join(
        [
            "import sys",
            "from tailrace.testing import any_order, fold",
            "from tests.testing.rides import HOURLY, ride",
            "assert any_order(HOURLY, [ride('09:10')]) == fold(HOURLY, [ride('09:10')]).answers",
            "print({'duckdb', 'hypothesis', 'pytest', 'pyarrow', 'pyspark', 'pyiceberg'} & {*sys.modules})",
        ]
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


STREAMED = """
import sys
from tailrace import minutes
from %RIDES import HOURLY, ride


def test_streams(lake, stream, backfill, clock):
    clock.set("2026-03-01T12:00")
    stream(HOURLY, [ride("09:10"), ride("10:30", 5)])
    clock.advance(minutes(5))
    stream(HOURLY, [ride("09:20", 7)])
    lake.answers(HOURLY).check("cents \\n 1")
    assert backfill(HOURLY, "2026-03-01T09:00", "2026-03-01T10:00").changed == 1
    lake.answers(HOURLY).check("cents \\n 8")
    lake.check(HOURLY)
    assert str(clock.now) == "2026-03-01 12:05:00+00:00"
    assert not {"pyspark", "py4j"} & {*sys.modules}
"""


@pytest.mark.slow
def test_the_fixtures_stream_and_backfill_without_spark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(rides=Path(rides.__file__).read_text(), test_streams=STREAMED.replace("%RIDES", "rides"))
    done = pytester.runpytest_subprocess("-p", plugin.__name__, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1)
