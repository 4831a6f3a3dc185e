"""Regions that join the clicks of one search engine: each with its copy of the logs, and one registry for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tailrace import Computation
from tailrace.generate.delivery import HOUR, MINUTE, Delivery, by_known_time
from tailrace.generate.delivery_files import land
from tailrace.generate.searches import searches
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.plan.loader import load_any
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.searches import LOGS
from tests.support.engines.sessions import session

FIRST = 1_767_225_600_000_000
"""2026-01-01, in microseconds."""

DEFINITION = str(Path(__file__).parents[3] / "pipelines" / "photon.py")
_FOUND = load_any(DEFINITION + ":photon")
assert isinstance(_FOUND, Computation)
PHOTON = _FOUND


def made(seed: int, *, rate: float = 1, length: int = 5 * MINUTE) -> list[Delivery]:
    """What the search engine brings, and of each log a record of a day later, whose watermark passes the rest."""
    found = searches(rate=rate, length=length, seed=seed, first=FIRST)
    last = FIRST + 24 * HOUR
    ends = {
        "searches": {"query_id": "end", "term": "end"},
        "clicks": {"click_id": "end", "query_id": "end", "ad": "end"},
    }
    return [*found, *(Delivery(last, one | {"at": last, "known": last}, log) for log, one in ends.items())]


def otherwise(deliveries: list[Delivery], chance: Random) -> list[Delivery]:
    """Deliver the logs as another region has them: each record becomes known at another time, up to 2 minutes later."""
    moved = [(one, one.known + chance.randrange(2 * MINUTE)) for one in deliveries]
    return by_known_time(Delivery(known, {**one.record, "known": known}, one.log) for one, known in moved)


@dataclass
class Region:
    """One region: a namespace with its tables, and the folder that its copies of the logs land in, each in its own."""

    settings: Settings
    folder: Path
    deliveries: InitVar[list[Delivery]]
    spark: SparkSession = field(init=False)

    def __post_init__(self, deliveries: list[Delivery]) -> None:
        self.spark, self.lake = session(self.settings), Lake(self.settings)
        for log in LOGS:
            (self.folder / log).mkdir(parents=True)
        aside = self.folder.with_name(f"{self.folder.name} to come")
        files = land(deliveries, aside, every=MINUTE, instants=("at", "known"))
        self.left = [list(some) for _, some in groupby(files, key=lambda file: file.name)]

    def lands(self, count: int | None = None) -> None:
        """What became known in so many more minutes lands, or all that is left."""
        for file in (file for some in self.left[:count] for file in some):
            file.rename(self.folder / file.parent.name / file.name)
        del self.left[:count]

    def sources(self, per_epoch: int) -> Mapping[str, Files]:
        """The folders as the sources of a stream, by their logs."""
        return {log: Files(str(self.folder / log), "json", per_epoch) for log in LOGS}

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
            "SELECT log.click_id FROM clicks log JOIN photon__ledger late ON late.kind = 'late' "
            "AND late.source_epoch = log._epoch AND late.source_partition = log._source "
            "AND late.source_offset = log._offset"
        )
        return self._clicks("kind IN ('production', 'claimed')") + Counter(row[0] for row in late.collect())

    def adds_up(self) -> None:
        """Each click of its log is joined, another's, unjoinable or late, once; nothing waits; the audit is clean."""
        clicks = self.spark.sql("SELECT click_id FROM clicks").collect()
        assert self.told() == Counter(row[0] for row in clicks)
        found = audit(self.lake, PHOTON)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["keys"] == found.counts["pending"] + found.counts["waiting"]

    def plain(self) -> Counter[str]:
        """The clicks whose query is in its log, less what came too late, by SQL."""
        in_time = (
            f"(SELECT log.* FROM {log} log LEFT ANTI JOIN photon__ledger late ON late.kind = 'late' "
            "AND late.source_epoch = log._epoch AND late.source_partition = log._source "
            "AND late.source_offset = log._offset)"
            for log in LOGS
        )
        asked, clicked = in_time
        text = f"SELECT clicked.click_id FROM {clicked} clicked JOIN {asked} asked USING (query_id)"
        return Counter(row[0] for row in self.spark.sql(text).collect())

    def _clicks(self, where: str) -> Counter[str]:
        return Counter(row[0] for row in self.spark.sql(f"SELECT click_id FROM photon__ledger WHERE {where}").collect())
