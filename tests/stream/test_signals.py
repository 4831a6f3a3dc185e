"""A signal from outside, sent by command, fires what waits for it with the next epoch; a replay sees it there too."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace import AfterCount, AfterSignal, AfterWatermark, Count, Fixed, Pipeline, minutes
from tailrace.cli.main import app
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake, lineage, properties_of
from tailrace.model.samples import examples
from tailrace.settings import Place, Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

DEFINITION = """
from tailrace import AfterCount, AfterSignal, AfterWatermark, Count, Fixed, Pipeline, minutes
from tailrace.model.samples import examples

books = Pipeline(
    name="books", log=examples.SCORES, key="team", what={"n": Count()}, where=Fixed(minutes(30)),
    when=AfterWatermark(early=AfterSignal("close"), late=AfterCount(1)), allowed_lateness=minutes(5),
)
"""


def books(name: str) -> Pipeline:
    when = AfterWatermark(early=AfterSignal("close"), late=AfterCount(1))
    what = {"n": Count()}
    return Pipeline(
        name=name, log=examples.SCORES, key="team", what=what, where=Fixed(minutes(30)), when=when,
        allowed_lateness=minutes(5),
    )  # fmt: skip


def signal(definition: Path, name: str, lake: Place) -> str:
    env = {"TAILRACE_WAREHOUSE": str(lake)}
    result = CliRunner().invoke(app, ["signal", str(definition), name, "--note", "the month is over"], env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_T2_a_signal_comes_with_one_epoch_and_stays_there(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, definition, lake = tmp_path / "landing", tmp_path / "books.py", Lake(settings)
    folder.mkdir()
    definition.write_text(DEFINITION)

    def land(number: int, records: Sequence[Mapping[str, Any]]) -> None:
        file = folder / f"{number}.jsonl"
        file.write_text("".join(json.dumps(one, default=lambda at: at.isoformat()) + "\n" for one in records))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def stream(*pipelines: Pipeline) -> None:
        one = Stream(plain, lake, pipelines, Files(str(folder), "json", 1))
        one.start(once=True)
        one.wait()
        one.close()

    records = examples.records()
    land(0, records[:3])
    stream(books("books"))
    assert "sent close to log scores" in signal(definition, "close", settings.warehouse)
    assert "no trigger of books waits for open" in signal(definition, "open", settings.warehouse)
    land(1, records[3:6])
    land(2, records[6:8])
    stream(books("books"))
    panes = plain.sql("SELECT epoch, timing, n FROM books__ledger WHERE kind = 'pane' ORDER BY epoch").collect()
    assert [tuple(row) for row in panes] == [(1, "early", 6)]
    heads = [properties_of(one) for one in lineage(lake.table("scores"), lake.head("scores").snapshot)]
    assert {one["epoch"]: one.get("signals") for one in heads} == {
        "-1": None, "0": None, "1": "close,open", "2": None,
    }  # fmt: skip
    # Who catches up later sees it in the same epoch.
    stream(books("others"))
    caught_up = plain.sql("SELECT epoch, timing, n FROM others__ledger WHERE kind = 'pane' ORDER BY epoch").collect()
    assert caught_up == panes
    found = audit(lake, books("others"))
    assert found.ok, [check for check in found.checks if not check.ok]
