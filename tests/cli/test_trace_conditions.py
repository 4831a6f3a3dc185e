"""Whatever condition `trace` and the page's search are asked with, they answer, or say what is wrong with it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tailrace.trace.wanted_records import Wanted, WantedError, find_records
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import append, at
from tests.support.processes.serving import Seen, visited

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")

ALL = Log(
    name="all_types",
    columns={
        "at": "timestamp", "who": "string", "n": "bigint", "small": "int", "size": "double", "on": "boolean",
        "day": "date", "cents": "decimal(9,2)",
    },
    event_time="at",
)  # fmt: skip
VALUES = ("1", "1.5", "'a'", "'2026-01-01'", "'2026-01-01T00:00:00+00:00'", "true", "''", "99999999999999999999")
FORMS = ("{} = {}", "{} != {}", "{} < {}", "{} in ({}, {value})", "not ({} >= {})", "{} like {}")


def test_a_condition_finds_records_or_is_refused_with_the_columns_there_are(settings: Settings) -> None:
    from tailrace.lake.schema.contracts import log_contract, rejected_contract

    lake = Lake(settings)
    for contract in (log_contract(ALL), rejected_contract(ALL)):
        lake.ensure(contract, {"epoch": "-1", "batch": "-1"})
    append(lake, ALL.name, [{"at": at(1), "who": "a", "n": 1, "_epoch": 0, "_source": "s", "_offset": 0}], {})
    answered, refused = 0, list[str]()
    for column, value, form in itertools.product((*ALL.columns, "_offset", "none"), VALUES, FORMS):
        text = form.format(column, value, value=value)
        try:
            answered += find_records(lake, ALL, Wanted(where=text), 5) is not None
        except WantedError as error:
            refused.append(str(error))
    assert min(answered, len(refused)) > 50
    assert all("expected a condition on its columns at, who, n," in said for said in refused)


@pytest.mark.parametrize("condition", ["city = 1", "city in (1, 2)", "price = 'x'", "at = true", "none = 1"])
def test_the_command_and_the_page_say_what_is_wrong_with_a_condition(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, condition: str
) -> None:
    small_lake.make(settings)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    definition = tmp_path / "rides.py"
    definition.write_text(small_lake.DEFINITION)
    result = CliRunner().invoke(app, ["trace", str(definition), "--where", condition])
    assert isinstance(result.exception, WantedError | SystemExit)
    said = result.output + str(result.exception)
    assert "expected a condition on its columns at, city, price" in said
    with visited(Lake(settings)) as client:
        answer = client.get("/search", params={"find": condition})
    assert answer.status_code == 200
    assert "expected a condition on its columns at, city, price" in Seen(answer.text).text
