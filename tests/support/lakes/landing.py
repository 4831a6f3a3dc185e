"""Files that keep landing for a definition of two stages, for tests that run the command as it is run.

The first stage has nested results: lists of structs, structs and maps.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DEFINITION = """
from tailrace import RETRACTING, AfterCount, AfterWatermark, AnyValue, Collect, Count, First, Fixed, Log, Pipeline
from tailrace import Sessions, Sum, seconds

clicks = Log(
    name="clicks",
    columns={
        "who": "string", "cents": "bigint", "at": "timestamp", "seen": "timestamp",
        "page": "struct<path:string,tags:array<string>>", "shares": "map<string,double>",
    },
    event_time="at",
    arrival_time="seen",
    disorder=seconds(20),
)
visits = Pipeline(
    name="visits",
    log=clicks,
    key="who",
    what={
        "clicks": Count(), "cents": Sum("cents"), "pages": Collect("page"), "entry": First("page"),
        "some": AnyValue("shares"),
    },
    where=Sessions(seconds(30)),
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=seconds(40),
)
by_length = Pipeline(
    name="visits_by_length",
    log=visits.panes,
    key="clicks",
    what={"visits": Count(), "cents": Sum("cents")},
    where=Fixed(seconds(120)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    how=RETRACTING,
)
"""


DEAR = """
from tailrace import Map, Match

what = ("who", "cents", "page", "shares")
dear_clicks = Map(name="dear_clicks", log=clicks, keep=Match("cents", ">=", 250), what=what)
"""
"""A map beside it, for those that stream that, too."""


class Landing:
    """Files that keep landing, a little malformed, with some records far behind the rest."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.count, self.records, self.broken = folder, chance, 0, 0, 0
        folder.mkdir()

    def land(self, files: int) -> None:
        for _ in range(files):
            lines = []
            for _ in range(12):
                row: dict[str, Any]
                seen = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=5 * self.count + self.chance.random() * 5)
                behind = self.chance.choice([1, 5, 15, 60, 300])
                at = seen - timedelta(seconds=behind)
                row = {"who": self.chance.choice("abcde"), "cents": self.chance.randrange(500)}
                row["page"] = {"path": f"/{self.chance.randrange(20)}", "tags": ["a", None, "b"][: row["cents"] % 4]}
                row["shares"] = {one: self.chance.random() for one in "xyz"[: row["cents"] % 3]}
                lines.append(json.dumps(row | {"at": at.isoformat(), "seen": seen.isoformat()}))
                self.records += 1
            if self.chance.random() < 0.2:
                lines.append('{"who": 1, ')
                self.broken += 1
            name = self.folder / f"{self.count:05}.json"
            hidden = self.folder / f".{self.count:05}.json"
            hidden.write_text("\n".join(lines) + "\n")
            os.utime(hidden, (1_700_000_000 + self.count, 1_700_000_000 + self.count))
            hidden.rename(name)
            self.count += 1
