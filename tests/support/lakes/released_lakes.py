"""Lakes as releases wrote them, each an archive: of two logs, all that may be in a lake, and files that land later.

`tools/released_lake.py` makes the archive of a release.
"""

from __future__ import annotations

import json
import os
import random
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from packaging.version import Version

from tailrace.lake.change.relocation import relocate
from tailrace.settings import Settings
from tests.support.depth import DEPTH

ARCHIVES = Path(__file__).parent / "released"

LOGS = ("orders", "payments")

STREAMED = ("by_length", "several", "takings")
"""The definitions of which the stream of an archive is: with what they read, all that its file has."""

LATE = ("late_lea", "late_lou")
"""Who has orders that come too late; nobody else has."""

DEFINITIONS = """
from tailrace import RETRACTING, AfterCount, AfterWatermark, BoundedDisorder, Collect, Count, First, Fixed, Join, Log
from tailrace import Map, Match, Max, Mean, Pipeline, Sessions, Sum, minutes, seconds

near = BoundedDisorder(seconds(20))
orders = Log(
    name="orders",
    columns={
        "id": "bigint", "who": "string", "pieces": "int", "price": "double", "at": "timestamp", "seen": "timestamp",
        "item": "struct<sku:string,tags:array<string>>", "weights": "map<string,double>",
    },
    event_time="at", arrival_time="seen", record_id="id", watermark=near,
)
payments = Log(
    name="payments", columns={"id": "bigint", "paid": "decimal(9,2)", "at": "timestamp", "seen": "timestamp"},
    event_time="at", arrival_time="seen", watermark=near,
)
visits = Pipeline(
    name="visits", log=orders, key="who", where=Sessions(seconds(30)),
    what={"orders": Count(), "spent": Sum("price"), "items": Collect("item"), "first": First("weights")},
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)), how=RETRACTING, allowed_lateness=seconds(40),
)
by_length = Pipeline(
    name="by_length", log=visits.panes, key="orders", where=Fixed(minutes(2)),
    what={"visits": Count(), "spent": Sum("spent")}, when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    how=RETRACTING,
)
several = Map(name="several", log=orders, keep=Match("pieces", ">=", 2), what=("id", "who", "price", "item"))
settled = Join(
    name="settled", left=orders, right=payments, on="id", kind="left", within=(seconds(0), seconds(60)),
    left_columns=("who", "price"), right_columns="paid",
)
takings = Pipeline(
    name="takings", log=settled.produced, key="who", where=Fixed(minutes(1)),
    what={"rows": Count(), "paid": Sum("paid"), "mean_price": Mean("price")},
    when=AfterWatermark(early=AfterCount(5), late=AfterCount(1)), allowed_lateness=minutes(5),
)
"""
"""What the lakes of releases are of; each archive has its own, as it was."""

BEFORE = DEFINITIONS.replace("Sessions(seconds(30))", "Sessions(seconds(20))")
"""What they were of at first, till a generation of `DEFINITIONS` was applied."""

AT = datetime(2026, 1, 1, tzinfo=UTC)


def land_records(folder: Path, later: Path, files: int, more: int) -> None:
    """Write the files of both logs, the same in each call: some to a folder, and those that come after to another.

    The last one has records so far ahead that all windows of the others are closed.
    """
    chance, waiting, number = random.Random(9), list[dict[str, Any]](), 0
    for place in range(files + more):
        lines: dict[str, list[dict[str, Any] | str]] = {log: [] for log in LOGS}
        lines["payments"] += waiting
        waiting.clear()
        last = place == files + more - 1
        if last:
            end = _times(AT + timedelta(hours=2), AT + timedelta(hours=2))
            lines["orders"].append({"id": number + 1, "who": "zoe", "pieces": 1, "price": 1.5} | end)
            lines["payments"].append({"id": number + 1, "paid": 1.5} | end)
        for _ in range(0 if last else 14):
            number += 1
            seen = AT + timedelta(seconds=45 * (place + chance.random()))
            who = chance.choice(["ada", "bob", "cyd", "dan", "eve", *LATE])
            behind = chance.choice([1, 4, 9, 150 if who in LATE and place > 2 else 15])
            at, price = seen - timedelta(seconds=behind), chance.choice([0.1, -0.0, 1e9, 99.99]) * chance.random()
            item = {"sku": f"s{number % 7}", "tags": ["a", None, "é"][: number % 4]}
            weights = {one: chance.random() for one in "xyz"[: number % 3]}
            order = {"id": number, "who": who, "pieces": number % 5, "price": price, "item": item, "weights": weights}
            lines["orders"].append(order | _times(at, seen))
            if number % 11 == 0:
                lines["orders"].append(lines["orders"][-1])
            for _ in range(chance.choice([0, 1, 1, 2])):
                paid_at = at + timedelta(seconds=chance.choice([1, 10, 30, 61]))
                payment = {"id": number, "paid": chance.randrange(9999) / 100}
                if chance.random() < 0.4:
                    waiting.append(payment | _times(paid_at, seen + timedelta(seconds=45)))
                else:
                    lines["payments"].append(payment | _times(paid_at, seen))
        lines["orders" if place % 2 else "payments"] += ['{"id": ', '{"id": "none", "at": "soon"}']
        for log, own in lines.items():
            file = (folder if place < files else later) / log / f"{place:03}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in own))
            os.utime(file, (1_700_000_000 + place, 1_700_000_000 + place))


def _times(at: datetime, seen: datetime) -> dict[str, str]:
    return {"at": at.isoformat(), "seen": seen.isoformat()}


@dataclass(frozen=True)
class ReleasedLake:
    """An archive that was unpacked: `lake`, `landing` with what it has read, `later` with what it has not, definitions.

    Both folders have one of each log.
    """

    folder: Path
    version: str

    @property
    def settings(self) -> Settings:
        return Settings(warehouse=self.folder / "lake", contracts=self.folder / "contracts", shuffle_partitions=2)

    @property
    def definitions(self) -> Path:
        """The file with the definitions of the lake."""
        return self.folder / "definitions.py"

    def land_rest(self) -> int:
        """Have the files land that have not yet; return how many each log gets."""
        files = sorted((self.folder / "later").rglob("*.json"))
        for file in files:
            file.rename(self.folder / "landing" / file.relative_to(self.folder / "later"))
        return len(files) // len(LOGS)


def archives() -> list[Path]:
    """The archives of the first and the last release, and in deep tests of all."""
    found = sorted(ARCHIVES.glob("*.tar.xz"), key=lambda one: Version(one.name.removesuffix(".tar.xz")))
    return found if DEPTH > 1 else [*dict.fromkeys((found[0], found[-1]))]


def unpack(archive: Path, folder: Path) -> ReleasedLake:
    """Unpack the lake of a release to a folder of any name, where it is as if it had been made there."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    facts = json.loads((folder / "facts.json").read_text())
    lake = ReleasedLake(folder, facts["version"])
    for file in (folder / "lake").rglob("*"):
        # So long ago that maintenance may remove what no table names any more.
        os.utime(file, (1_700_000_000, 1_700_000_000))
    relocate(lake.settings)
    for file in _checkpoint(folder):
        was = file.stat().st_mtime
        file.write_text(file.read_text().replace(f"{facts['place']}/", f"{folder}/"))
        os.utime(file, (was, was))
        # Hadoop's checksum of what the file was.
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    return lake


def _checkpoint(folder: Path) -> Iterator[Path]:
    yield from (one for one in (folder / "lake" / "_checkpoints").rglob("*") if one.is_file() and one.suffix != ".crc")
