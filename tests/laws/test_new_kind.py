"""A kind of definition from outside the package is streamed, backfilled, audited, traced and explained as the others.

Its entries in the layers' verbs are all that it takes (`tests/support/cases/alarms.py`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace import Log
from tailrace.backfill.backfill import backfill
from tailrace.cli import main
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.fold_kinds import fold_of
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.epoch_properties import clock_properties
from tailrace.lake.read.status import status
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.definition import Definition, KindError
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.trace.steps import LeftOut, Row
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import Wanted, find_records
from tailrace.verify.audit import audit
from tests.support.cases.alarms import Alarm
from tests.support.engines.computation_folds import no_spark
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.lakes.small_lake import append

PROBES = Log(name="probes", columns={"at": "timestamp", "heat": "bigint"}, event_time="at")
HOT = Alarm(name="hot", log=PROBES, column="heat", over=90)
START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCHS = ([80, 95], [91, 90], [120])


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A lake with a log of three epochs, which a fold of the alarms has taken in one after the other."""
    lake = Lake(settings)
    lake.ensure(log_contract(PROBES), {"epoch": "-1"})
    lake.ensure(rejected_contract(PROBES), {"epoch": "-1"})
    fold = fold_of(HOT, FoldSetup(lake, StreamEngines(no_spark, lake), Pace.of(None, settings.freshness)))
    for epoch, heats in enumerate(EPOCHS):
        records = [{"at": START + timedelta(minutes=epoch, seconds=n), "heat": heat} for n, heat in enumerate(heats)]
        clock, bundle = Clock(epoch, instant(START), instant(START)), arrow_bundle(PROBES, records, epoch)
        files = FileChange(tuple(lake.write_files(PROBES.name, bundle)))
        lake.change(PROBES.name, files, clock_properties(clock), lake.head(PROBES.name).snapshot)
        fold.stage(PassedEpoch.of(bundle, clock), Phases())
        assert fold.publish()
    fold.close()
    return lake


def alarms(lake: Lake) -> list[tuple[int, int]]:
    rows = lake.table("hot__ledger").scan("kind = 'production'").to_arrow().to_pylist()
    signed = [(-1 if row["retraction"] else 1, row["heat"], row["by"]) for row in rows]
    taken_back = [row[1:] for row in signed if row[0] < 0]
    return sorted(row[1:] for row in signed if row[0] > 0 and row[1:] not in taken_back)


def test_a_new_kind_is_streamed_and_audited(lake: Lake) -> None:
    assert alarms(lake) == [(91, 1), (95, 5), (120, 30)]
    found = audit(lake, HOT)
    assert found.ok, [check for check in found.checks if not check.ok]
    own = status(lake, HOT).own
    assert own is not None
    assert (own.counts["production"], own.same_definition) == (3, True)


def test_a_new_kind_is_backfilled(lake: Lake) -> None:
    (same,) = backfill(lake, HOT, 0)
    assert (same.changed, same.retracted, same.untouched) == (0, 0, 3)
    ledger = lake.table("hot__ledger").scan("kind = 'production'").to_arrow().to_pylist()
    wrong = ledger[0] | {"heat": 77, "by": 7, "source_offset": 1000}
    append(lake, "hot__ledger", [wrong], dict(lake.head("hot__ledger").properties))
    (mended,) = backfill(lake, HOT, 0)
    assert (mended.retracted, mended.untouched) == (1, 3)
    assert alarms(lake) == [(91, 1), (95, 5), (120, 30)]


def test_a_new_kind_is_traced_and_explained(lake: Lake, tmp_path: Path) -> None:
    tracing = Tracing(lake, HOT)
    for condition, expected in (("heat = 95", Row), ("heat = 80", LeftOut)):
        (landed,) = find_records(lake, PROBES, Wanted(where=condition), 5).landed
        assert [type(step) for step in tracing.of(landed)] == [expected]
    file = tmp_path / "hot.py"
    file.write_text("from tests.laws.test_new_kind import HOT\n")
    assert load_any(str(file)) == HOT
    told = CliRunner().invoke(main.app, ["explain", str(file)])
    assert told.exit_code == 0, told.output
    assert HOT.fingerprint in told.output


def test_a_kind_without_an_entry_is_refused_by_the_name_of_the_verb() -> None:
    class Unknown(Definition):
        kind_name = "unknown"

    with pytest.raises(KindError, match="Unknown: no kind of definition that there is a declaration of tables for"):
        tables_of(Unknown())
