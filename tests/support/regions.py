"""Regions that join the clicks of one search engine: each with its copy of the log, and one registry for all."""

from __future__ import annotations

from collections import Counter
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tailrace import Computation
from tailrace.generate.delivery import HOUR, MINUTE, Delivery, in_order
from tailrace.generate.delivery_files import land
from tailrace.generate.searches import searches
from tailrace.lake.catalog.lake import Lake
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.verify.computation_audit import audit_computation
from tests.support.sessions import session

FIRST = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""

DEFINITION = str(Path(__file__).parents[2] / "pipelines" / "photon.py")
_FOUND = load_any(DEFINITION + ":photon")
assert isinstance(_FOUND, Computation)
PHOTON = _FOUND


def made(seed: int, *, rate: float = 1, length: int = 5 * MINUTE) -> list[Delivery]:
    """What the search engine brings, and a day later one query, which takes the watermark past all of it."""
    found = searches(rate=rate, length=length, seed=seed, first=FIRST)
    last = FIRST + 24 * HOUR
    query = dict.fromkeys(found[0].record) | {"kind": "query", "event_id": "end", "query_id": "end", "term": "end"}
    return [*found, Delivery(last, query | {"at": last, "known": last})]


def otherwise(deliveries: list[Delivery], chance: Random) -> list[Delivery]:
    """Deliver a log as another region has it: each record becomes known at another time, up to two minutes later."""
    moved = [(one, one.known + chance.randrange(2 * MINUTE)) for one in deliveries]
    return in_order(Delivery(known, {**one.record, "known": known}) for one, known in moved)


@dataclass
class Region:
    """One region: a namespace with its tables, and the folder that its copy of the log lands in."""

    settings: Settings
    folder: Path
    deliveries: InitVar[list[Delivery]]
    spark: SparkSession = field(init=False)

    def __post_init__(self, deliveries: list[Delivery]) -> None:
        self.spark, self.lake = session(self.settings), Lake(self.settings)
        self.folder.mkdir()
        aside = self.folder.with_name(f"{self.folder.name} to come")
        self.left = list(land(deliveries, aside, every=MINUTE, instants=("at", "known")))

    def lands(self, count: int | None = None) -> None:
        """So many files more land, or all that are left."""
        for file in self.left[:count]:
            file.rename(self.folder / file.name)
        del self.left[:count]

    @property
    def joined(self) -> Counter[str]:
        """The clicks that it joined."""
        return self._clicks("kind = 'production' AND outcome = 'joined'")

    @property
    def claimed(self) -> Counter[str]:
        """The clicks that it would have joined."""
        return self._clicks("kind = 'claimed'")

    def told(self) -> Counter[str]:
        """The clicks of its ledger, each as often as it is there: those that came too late, too."""
        late = self.spark.sql(
            "SELECT log.click_id FROM searches log JOIN photon__ledger late ON late.kind = 'late' "
            "AND late.source_epoch = log._epoch AND late.source_partition = log._source "
            "AND late.source_offset = log._offset WHERE log.kind = 'click'"
        )
        return self._clicks("kind IN ('production', 'claimed')") + Counter(row[0] for row in late.collect())

    def adds_up(self) -> None:
        """Each click of its log is joined, another's, unjoinable or late, once; nothing waits; the audit is clean."""
        clicks = self.spark.sql("SELECT click_id FROM searches WHERE kind = 'click'").collect()
        assert self.told() == Counter(row[0] for row in clicks)
        found = audit_computation(self.lake, PHOTON)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["keys"] == found.counts["pending"] + found.counts["waiting"]

    def plain(self) -> Counter[str]:
        """The clicks whose query is in its log, less what came too late, by SQL."""
        text = """
            WITH late AS (SELECT source_epoch, source_partition, source_offset FROM photon__ledger WHERE kind = 'late'),
            taken AS (
                SELECT log.* FROM searches log LEFT ANTI JOIN late ON late.source_epoch = log._epoch
                AND late.source_partition = log._source AND late.source_offset = log._offset
            )
            SELECT clicks.click_id FROM taken clicks JOIN taken queries USING (query_id)
            WHERE clicks.kind = 'click' AND queries.kind = 'query'"""
        return Counter(row[0] for row in self.spark.sql(text).collect())

    def _clicks(self, where: str) -> Counter[str]:
        return Counter(row[0] for row in self.spark.sql(f"SELECT click_id FROM photon__ledger WHERE {where}").collect())
