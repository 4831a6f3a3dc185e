"""Minutes of searches and clicks as a region reads them, cut anyhow, and their join: Photon, and a hasty one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from tailrace import Computation, minutes
from tailrace.generate.searches import searches
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.plan.loader import load_any

PHOTON = load_any(f"{Path(__file__).parents[3] / 'pipelines' / 'photon.py'}:photon")
assert isinstance(PHOTON, Computation)
_IN_HASTE: Mapping[str, Any] = {"waits": minutes(2), "allowed_lateness": minutes(1)}
HASTY = replace(PHOTON, **_IN_HASTE)
LOGS = ("searches", "clicks")

Epoch: TypeAlias = Mapping[str, tuple[Sequence[Mapping[str, Any]], Clock]]
"""The records and the clock of each log, by its name."""

Epochs: TypeAlias = list[Epoch]


def number_of(epoch: Epoch) -> int:
    """The number of an epoch, which is the same in all logs."""
    (found,) = {clock.epoch for _, clock in epoch.values()}
    return found


def part(log: str, records: Iterable[Mapping[str, Any]], clock: Clock) -> tuple[list[dict[str, Any]], Clock]:
    """A log's part of an epoch: the records with the places that they have in the log."""
    at = {"_epoch": clock.epoch, "_source": log}
    return [{**one, **at, "_offset": place} for place, one in enumerate(records)], clock


def made(seed: int, length: int = 180_000_000) -> list[dict[str, Any]]:
    """So many microseconds of both logs, each record once, in the order in which they become known.

    Column `log` says which log a record is of, and `id` which one it is.
    """
    found: dict[str, dict[str, Any]] = {}
    for one in searches(rate=1, length=length, seed=seed, first=1_700_000_000_000_000):
        times = {name: moment(one.record[name]) for name in ("at", "known")}
        id = one.record.get("click_id", one.record["query_id"])
        found.setdefault(id, {**one.record, **times, "log": one.log, "id": id})
    return list(found.values())


def epochs(records: list[dict[str, Any]], chance: Random) -> Epochs:
    """The records as a region reads them: some out of their order, cut anyhow, the last ones at the end of time."""
    mixed = sorted(records, key=lambda one: instant(one["known"]) + chance.randrange(90_000_000))
    found: Epochs = []
    marks, now = dict.fromkeys(LOGS, 0), 0
    while mixed:
        bundle, mixed = mixed[: (cut := chance.randint(1, 40))], mixed[cut:]
        now, epoch = now + 1_000_000, {}
        for log in LOGS:
            own = [one for one in bundle if one["log"] == log]
            if own:
                latest = max(instant(one["at"]) for one in own)
                marks[log] = max(marks[log], latest - chance.randrange(240_000_000))
            epoch[log] = part(log, own, Clock(len(found), marks[log], now))
        found.append(epoch)
    return [*found, {log: part(log, (), Clock(len(found), END_OF_TIME, now)) for log in LOGS}]
