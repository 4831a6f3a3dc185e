"""A fold with nested results that dies in the middle of its commits loses nothing and doubles nothing (X2, L1, L3).

The folds run in this process on real tables, and die before or after any change of a table: the next fold restores
lists, structs and maps from the ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, seconds
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import BASE
from tests.support.depth import cases
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.faults.worlds import Killed
from tests.support.lakes.landing import DEFINITION
from tests.support.lakes.recorded_ledgers import land, no_spark

EPOCHS = 4


def clicks(chance: Random, epoch: int) -> list[dict[str, Any]]:
    """The records of an epoch of 20 seconds, a few of them far behind."""
    made = []
    for _ in range(chance.randrange(2, 9)):
        at = BASE + seconds(20 * epoch + chance.randrange(20) - chance.choice([0, 0, 10, 30, 100]))
        count = chance.randrange(4)
        made.append({
            "who": chance.choice("ab"), "cents": chance.randrange(500), "at": at,
            "seen": BASE + seconds(20 * epoch + 20),
            "page": chance.choice([None, {"path": f"/{epoch}", "tags": ["a", None, "b"][:count]}]),
            "shares": [{"key": one, "value": chance.choice([0.1, 2.5, -0.0])} for one in "xyz"[:count]],
        })  # fmt: skip
    return made


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, chance: Random) -> Iterator[Counter[str]]:
    """Have changes and marks of tables die, before or after they are made; count how often."""
    deaths = Counter[str]()

    def mortal(verb: str) -> Any:
        does = getattr(Lake, verb)

        def done(lake: Lake, name: str, *given: Any, **more: Any) -> Any:
            fate = chance.random()
            if fate < 0.06:
                deaths[f"{verb} {name} before"] += 1
                raise Killed
            found = does(lake, name, *given, **more)
            if fate > 0.94:
                deaths[f"{verb} {name} after"] += 1
                raise Killed
            return found

        return done

    with monkeypatch.context() as patched:
        for verb in ("change", "mark"):
            patched.setattr(Lake, verb, mortal(verb))
        yield deaths


def folded(lake: Lake, definitions: list[Definition], epoch: int) -> None:
    group = FoldGroup(no_spark, lake, definitions, follow_every=1)
    list(group.missed_epochs(epoch))
    group.close()


@pytest.mark.parametrize("seed", range(cases(1, deeper=60)))
def test_X2_L3_a_fold_with_nested_results_that_dies_again_and_again_ends_as_if_it_never_had(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    file = tmp_path / "visits.py"
    file.write_text(DEFINITION)
    visits, lake = load(f"{file}:visits"), Lake(settings)
    lake.ensure(log_contract(visits.log), {"epoch": "-1"})
    lake.ensure(rejected_contract(visits.log), {"epoch": "-1"})
    chance, deaths = Random(seed), Counter[str]()
    for epoch in range(EPOCHS):
        now = instant(BASE) + 20_000_000 * (epoch + 1)
        clock = Clock(epoch, END_OF_TIME if epoch == EPOCHS - 1 else now - 30_000_000, now)
        land(lake, visits.log.name, arrow_bundle(visits.log, clicks(chance, epoch), epoch), clock)
        while True:
            with dying(monkeypatch, chance) as fates, suppress(Killed):
                folded(lake, [visits], epoch)
                break
            deaths += fates
    assert deaths.total() >= 2, "it dies while tables change"
    found = lake.table("visits").scan().to_arrow().to_pylist()
    assert max(len(row["pages"] or []) for row in found) > 3
    done = audit(lake, visits)
    assert done.ok, f"seed {seed}: {[check for check in done.checks if not check.ok]}"
    assert replay(lake, visits).ok, f"seed {seed}"
