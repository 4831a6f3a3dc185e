"""Definitions come out of Python files; whatever is wrong with one is said with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.cli.terminal.usage import ExitStatus, LoadError, status_of
from tailrace.plan.loader import load, load_all

GOOD = """
from tailrace import Count, Fixed, Log, Pipeline, hours

rides = Log(name="rides", columns={"at": "timestamp", "city": "string"}, event_time="at")


def hourly(name):
    return Pipeline(name=name, log=rides, key="city", what={"rides": Count()}, where=Fixed(hours(1)))


"""


def written(folder: Path, text: str, name: str = "rides.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_the_only_pipeline_of_a_file_needs_no_name(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD + "one = hourly('hourly_rides')\nthe_same = one\n")
    assert load(file).name == "hourly_rides"


@pytest.mark.parametrize("name", ["second_rides", "two"])
def test_one_of_several_is_named_by_the_pipeline_or_its_variable(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, GOOD + "one, two = hourly('first_rides'), hourly('second_rides')\n")
    assert load(f"{file}:{name}").name == "second_rides"


def test_the_example_holds_one() -> None:
    assert load("pipelines/flights.py").name == "hourly_departures"
    assert len(Path("pipelines/flights.py").read_text().splitlines()) <= 25


def test_a_definition_can_import_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, GOOD, "common_rides.py")
    file = written(tmp_path, "from common_rides import hourly\none = hourly('hourly_rides')\n")
    assert load(file).name == "hourly_rides"


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path) -> None:
    assert load(written(tmp_path, GOOD + "one = hourly('rides')\n", "a:b")).name == "rides"


WRONG = {
    "several": (
        "one, two = hourly('first_rides'), hourly('second_rides')\n",
        "{file}: holds 2 pipelines (first_rides, second_rides): "
        "say which, as {file}:first_rides or {file}:second_rides",
    ),
    "none": ("", '{file}: no Pipeline in it: expected for example hourly = Pipeline(name="hourly", ...)'),
    "its own error": (
        "print(1)\nrides.nothing\n",
        "{file}:12: AttributeError: 'Log' object has no attribute 'nothing'",
    ),
    "an error further in": ("hourly(name=1 / 0)\n", "{file}:11: ZeroDivisionError: division by zero"),
    "no Python": ("def\n", "{file}:11: SyntaxError: invalid syntax"),
    "it ends the process": ("raise SystemExit(3)\n", "{file}:11: SystemExit: 3"),
    "no text": ("raise ValueError\n", "{file}:11: ValueError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_file_and_line(tmp_path: Path, case: str) -> None:
    text, message = WRONG[case]
    file = written(tmp_path, GOOD + text)
    with pytest.raises(LoadError) as caught:
        load(file)
    assert str(caught.value) == message.format(file=file)
    assert status_of(caught.value) is ExitStatus.USAGE


def test_a_wrong_definition_shows_all_its_faults(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD + "Pipeline(name='Rides', log=rides, key='town', what={}, where=Fixed(hours(0)))\n")
    with pytest.raises(LoadError) as caught:
        load(file)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{file}:11: definition 'Rides' has 4 faults:"
    assert [line.split(" = ")[0] for line in lines[1:]] == ["  1. name", "  2. key[0]", "  3. what", "  4. where.size"]


def test_no_such_file_and_no_such_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"nothing\.py: no such file: expected a Python file that holds a Pipeline"):
        load(str(tmp_path / "nothing.py"))
    with pytest.raises(LoadError, match="a folder: expected a Python file"):
        load(str(tmp_path))
    file = written(tmp_path, GOOD + "one = hourly('rides')\n")
    with pytest.raises(LoadError, match="no pipeline 'walks' in it: expected one of rides"):
        load(f"{file}:walks")


def test_two_definitions_of_one_name_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD + "one = hourly('rides')\n")
    other = written(tmp_path, GOOD + "one = hourly('rides')\n", "again.py")
    with pytest.raises(LoadError, match="more than one pipeline named rides: pass each once"):
        load_all([file, other])
