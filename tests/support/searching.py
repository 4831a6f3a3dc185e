"""Minutes of searches as a region reads them, cut anyhow, and the join of their clicks: Photon, and a hasty one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tailrace import Computation, minutes
from tailrace.generate.searches import searches
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.plan.loader import load_any

PHOTON = load_any(f"{Path(__file__).parents[2] / 'pipelines' / 'photon.py'}:photon")
assert isinstance(PHOTON, Computation)
_IN_HASTE: Mapping[str, Any] = {"waits": minutes(2), "allowed_lateness": minutes(1)}
HASTY = replace(PHOTON, **_IN_HASTE)
Epochs = list[tuple[Sequence[Mapping[str, Any]], Clock]]


def log(seed: int, length: int = 180_000_000) -> list[dict[str, Any]]:
    """So many microseconds of searches, each record once, in the order in which they become known."""
    found: dict[str, dict[str, Any]] = {}
    for number, one in enumerate(searches(rate=1, length=length, seed=seed, first=1_700_000_000_000_000)):
        times = {name: moment(one.record[name]) for name in ("at", "known")}
        found.setdefault(one.record["event_id"], {**one.record, **times, "_source": "log", "_offset": number})
    return list(found.values())


def epochs(records: list[dict[str, Any]], chance: Random) -> Epochs:
    """The records as a region reads them: some out of their order, cut anyhow, the last ones at the end of time."""
    mixed = sorted(records, key=lambda one: instant(one["known"]) + chance.randrange(90_000_000))
    found: Epochs = []
    watermark, now = 0, 0
    while mixed:
        bundle, mixed = mixed[: (cut := chance.randint(1, 40))], mixed[cut:]
        latest = max(instant(one["at"]) for one in bundle)
        watermark, now = max(watermark, latest - chance.randrange(240_000_000)), now + 1_000_000
        found.append((bundle, Clock(len(found), watermark, now)))
    return [*found, ([], Clock(len(found), END_OF_TIME, now))]
