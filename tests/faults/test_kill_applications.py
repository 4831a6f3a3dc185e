"""What the definitions in `pipelines/` say is what plain SQL says of their logs, however often their stream is killed.

So it is after a backfill has counted what came too late, and the bills are so to the last digit (X2, L1). What a
computation gave is what the reference gives of the log's epochs.
"""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import Computation, Pipeline
from tailrace.generate.delivery_files import land
from tailrace.lake.catalog.lake import Lake
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.applications import APPLICATIONS, RECORDS, file, once, sources, stretch
from tests.support.checks.ledgers import as_ever
from tests.support.checks.pipeline_answers import as_by_hand
from tests.support.depth import deep
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill

COMPUTATIONS = {"silences": "flights", "zeitgeist": "queries"}
STREAMS = {
    records: [
        *(one.name for one in APPLICATIONS.values() if one.records == records),
        *(name for name, of in COMPUTATIONS.items() if of == records),
    ]
    for records in RECORDS
}
"""The definitions that one stream folds, by the records that they are tried on."""


@deep
@pytest.mark.slow
@pytest.mark.timeout(900 * KILLS)
@pytest.mark.parametrize("records", STREAMS)
def test_X2_the_answers_of_a_stream_killed_at_many_moments_are_those_of_plain_sql_over_the_log(
    plain: SparkSession, settings: Settings, tmp_path: Path, records: str
) -> None:
    chance, folder = random.Random(SEED), tmp_path / "landing"
    names = STREAMS[records]
    made, hint = RECORDS[records].made(), f"seed {SEED}"
    # Some files for each kill, and some for what is left.
    every = stretch(made, 4 * (KILLS + 1))
    whole = tmp_path / "all"
    files = list(land(made, whole, every=every, instants=RECORDS[records].instants))
    logs = load_any(file(names[0])).sources
    given = {name: Path(source.folder) for name, source in sources(logs, folder).items()}
    for one in given.values():
        one.mkdir(parents=True)
    env, words = environment(settings), [word for name, one in given.items() for word in ("--from", f"{name}={one}")]
    command = [sys.executable, "-m", "tailrace.cli.main", "stream", *map(file, names), *words, "--json"]
    left = iter(files)
    for _ in range(KILLS):
        for one in islice(left, len(files) // (KILLS + 1)):
            one.rename(folder / one.relative_to(whole))
        assert run_and_kill([*command, "--per-epoch", "1"], env, chance, 6), hint
    for one in left:
        one.rename(folder / one.relative_to(whole))
    # What is left is drained in larger epochs, which takes less time and must not matter.
    done = subprocess.run(
        [*command, "--per-epoch", "8", "--once"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lake = Lake(settings)
    for name in names:
        definition = load_any(file(name))
        for log in logs:
            assert plain.table(log.name).count() == len(once(log, made)), hint
        if isinstance(definition, Computation):
            as_ever(plain, lake, [definition])
            found = audit(lake, definition)
            assert found.ok, f"{hint}: {[check for check in found.checks if not check.ok]}"
            continue
        answers = as_by_hand(plain, lake, APPLICATIONS[name], hint)
        if name == "ads":
            assert isinstance(definition, Pipeline)
            owed = list(definition.what).index("owed")
            assert _paid(plain, RECORDS[records].last) == sum(answer[owed] for answer in answers.values()), hint


def _paid(spark: SparkSession, before: int) -> object:
    """What all panes of the bills say of the first day, less what they take back."""
    (row,) = spark.sql(
        f"""SELECT SUM(IF(retraction, -owed, owed)) AS owed FROM ad_bills__ledger
        WHERE kind = 'pane' AND UNIX_MICROS(window_start) < {before}"""
    ).collect()
    return row["owed"]
