"""A lake that a release wrote goes on under this version, and has what a fresh one has (rule V7)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace.backfill.backfill import backfill_stages
from tailrace.cli.main import app
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.operate.maintenance import maintain
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.testing.ledger_rows import ledger_rows
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.engines.sessions import session
from tests.support.lakes.released_lakes import LOGS, STREAMED, ReleasedLake, archives, unpack

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


class Lakes:
    """A lake and what a stream of it reads."""

    def __init__(self, settings: Settings, landing: Path, definitions: Sequence[Definition], per_epoch: int) -> None:
        self.lake, self.definitions = Lake(settings), definitions
        self.spark = session(settings, {"spark.sql.codegen.wholeStage": "false"})
        self.sources = {log: Files(str(landing / log), per_epoch=per_epoch) for log in LOGS}

    @property
    def stages(self) -> dict[str, Ranged]:
        """The definitions with all that they read, each after what it reads."""
        return {one.name: cast("Ranged", one) for named in self.definitions for one in chain(named)}

    def stream(self) -> Stream:
        """Stream all that has landed."""
        running = Stream(self.spark, self.lake, self.definitions, self.sources)
        running.start(once=True)
        running.wait()
        running.close()
        return running

    def backfill(self) -> None:
        """Compute everything again."""
        for one in self.definitions:
            backfill_stages(self.lake, cast("Ranged", one), BEGINNING, END_OF_TIME, spark=False)

    def audit(self) -> None:
        """Find that every record counts once, and that the answers are those of one batch."""
        for one in self.stages.values():
            assert not [check for check in audit(self.lake, one).checks if not check.ok], one.name

    def rows(self) -> dict[str, list[str]]:
        """The answers and the records, as texts in order, without their versions and places."""
        texts = dict[str, list[str]]()
        for name, stage in self.stages.items():
            own, given = tables_of(stage), ledger_rows(stage, self.lake)
            columns = [*own.keys, "window_start", "window_end", *own.values]
            texts[name] = sorted(repr([row.get(column) for column in columns]) for row in given.answers)
        for log in LOGS:
            texts[log] = _texts(self.lake.table(log).scan().to_arrow(), "_")
            texts[f"{log}__rejected"] = _texts(
                self.lake.table(f"{log}__rejected").scan().to_arrow(), "_ep", "_so", "_of"
            )
        return texts


def _texts(rows: pa.Table, *left_out: str) -> list[str]:
    names = [name for name in rows.column_names if not name.startswith(left_out)]
    return sorted(map(repr, rows.select(names).to_pylist()))


def told(command: str, *args: str) -> Mapping[str, Any]:
    """What a command says of a lake, which it only reads."""
    result = CliRunner().invoke(app, [command, *args, "--json"])
    assert result.exit_code == 0, result.output
    return cast("Mapping[str, Any]", json.loads(result.stdout))


@pytest.fixture(params=archives(), ids=lambda one: one.name.removesuffix(".tar.xz"))
def released(request: pytest.FixtureRequest, tmp_path: Path) -> ReleasedLake:
    """The lake of each release."""
    return unpack(request.param, tmp_path / "released")


def test_V7_commands_read_the_lake_of_a_release_and_nothing_has_to_be_applied(
    released: ReleasedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(released.settings.warehouse))
    for name in STREAMED:
        definition = f"{released.definitions}:{name}"
        assert told("status", definition)
        assert told("trace", definition, "--where", "who = 'ada'")["logs"][0]["records"]
        if name != "several":
            assert told("late", definition)
            assert told("plan", definition)["change"] == "nothing"


@pytest.mark.slow
def test_V7_a_lake_of_a_release_goes_on_and_has_what_a_fresh_one_has(
    spark: SparkSession, released: ReleasedLake, tmp_path: Path
) -> None:
    definitions = [load_any(f"{released.definitions}:{name}") for name in STREAMED]
    old = Lakes(released.settings, released.folder / "landing", definitions, 1)
    before = old.lake.head("takings__ledger").number("epoch")
    more = released.land_rest()
    assert old.stream().mended is None, "the checkpoint is read as it is"
    assert old.lake.head("takings__ledger").number("epoch") == before + more
    for one in old.stages.values():
        assert replay(old.lake, one, before + 1).ok, one.name
    old.backfill()
    keeping = released.settings.model_copy(update={"keep_snapshots": timedelta(0)})
    maintain(lambda: old.spark, Lake(keeping), definitions[0])
    old.audit()

    for log in LOGS:
        (tmp_path / "landing" / log).mkdir(parents=True)
        for file in (released.folder / "landing" / log).iterdir():
            os.link(file, tmp_path / "landing" / log / file.name)
    fresh_settings = released.settings.model_copy(update={"warehouse": tmp_path / "fresh"})
    fresh = Lakes(fresh_settings, tmp_path / "landing", definitions, 13)
    fresh.stream()
    fresh.backfill()
    rows = fresh.rows()
    assert all(rows.values()), "there is something of everything"
    for name, own in old.rows().items():
        assert own == rows[name], name
