"""Views and clicks of ads that keep landing by two ways, and a join of both, for tests that run the command."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

START = datetime(2024, 1, 1, tzinfo=UTC)
DEFINITION = """
from tailrace import AfterCount, AfterWatermark, BoundedDisorder, Count, Fixed, Join, Log, Pipeline, Sum, Union
from tailrace import RETRACTING, minutes, seconds

near = BoundedDisorder(seconds(20), idle=seconds(1))
seen = {"at": "timestamp", "view": "bigint"}
views = Log(name="views", columns={**seen, "ad": "string"}, event_time="at", watermark=near)
clicks = Log(name="clicks", columns={**seen, "cents": "bigint"}, event_time="at", watermark=near)
clicked = Join(
    name="clicked", left=views, right=clicks, on="view", kind="left", within=(seconds(0), seconds(60)),
    left_columns={"ad": "ad", "viewed_at": "at"}, right_columns={"cents": "cents"},
)
earned = Pipeline(
    name="earned", log=clicked.produced, key="ad", where=Fixed(minutes(1)),
    what={"rows": Count(), "clicks": Count("cents"), "cents": Sum("cents")},
    when=AfterWatermark(early=AfterCount(5), late=AfterCount(1)), allowed_lateness=minutes(5),
)
spent = Pipeline(
    name="spent", log=clicks, key="view", what={"clicks": Count(), "cents": Sum("cents")}, where=Fixed(minutes(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=RETRACTING, allowed_lateness=minutes(1),
)
paid = Join(
    name="paid", left=views, right=spent.panes, on="view", kind="left", within=minutes(3), unmatched="tell",
    left_columns={"ad": "ad", "viewed_at": "at"},
)
ads = Union(name="ads", of=(views, clicks))
both = Pipeline(name="seen", log=ads, key="log", what={"records": Count()}, where=Fixed(minutes(1)))
"""


class TwoLogs:
    """Files that keep landing in a folder for each log, a little malformed, some records far behind the rest.

    Every other click is in the file after that of its view.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.count, self.broken = folder, chance, 0, 0
        self.waiting: list[dict[str, Any]] = []
        self.records: dict[str, list[dict[str, Any]]] = {"views": [], "clicks": []}
        for log in self.records:
            (folder / log).mkdir(parents=True)

    def made(self) -> dict[str, list[bytes]]:
        """The lines of another file of each log."""
        lines: dict[str, list[bytes]] = {log: [] for log in self.records}
        for click in self.waiting:
            self._add("clicks", click, lines)
        self.waiting.clear()
        for _ in range(10):
            behind = self.chance.choice([0, 1, 10, 90])
            at = START + timedelta(seconds=5 * self.count + self.chance.random() * 5 - behind)
            number = len(self.records["views"])
            view = {"at": at.isoformat(), "view": number, "ad": self.chance.choice("abc")}
            self._add("views", view, lines)
            for _ in range(self.chance.choice([0, 0, 1, 1, 2])):
                clicked = at + timedelta(seconds=self.chance.choice([1, 20, 59, 70]))
                click = {"at": clicked.isoformat(), "view": number, "cents": self.chance.randrange(9)}
                if self.chance.random() < 0.5:
                    self.waiting.append(click)
                else:
                    self._add("clicks", click, lines)
        if self.chance.random() < 0.2:
            lines["clicks"].append(b'{"view": 1, ')
            self.broken += 1
        self.count += 1
        return lines

    def land(self, files: int) -> None:
        for _ in range(files):
            for log, lines in self.made().items():
                if lines:
                    name, hidden = (self.folder / log / f"{dot}{self.count:05}.json" for dot in ("", "."))
                    hidden.write_bytes(b"\n".join(lines) + b"\n")
                    os.utime(hidden, (1_700_000_000 + self.count, 1_700_000_000 + self.count))
                    hidden.rename(name)

    def pairs(self) -> list[tuple[Any, ...]]:
        """The pairs by plain SQL: of each the view, the cents, and the microsecond at which it happened."""
        with duckdb.connect() as database:
            for log, records in self.records.items():
                database.execute(f"CREATE TABLE {log} (happened TIMESTAMPTZ, view BIGINT, ad TEXT, cents BIGINT)")
                rows = [[one["at"], one["view"], one.get("ad"), one.get("cents")] for one in records]
                if rows:
                    database.executemany(f"INSERT INTO {log} VALUES (?, ?, ?, ?)", rows)
            return database.execute(
                "SELECT v.view, c.cents, epoch_us(greatest(v.happened, c.happened)) FROM views v JOIN clicks c "
                "ON v.view = c.view AND c.happened BETWEEN v.happened AND v.happened + INTERVAL 60 SECOND ORDER BY ALL"
            ).fetchall()

    def _add(self, log: str, record: dict[str, Any], lines: dict[str, list[bytes]]) -> None:
        self.records[log].append(record)
        lines[log].append(json.dumps(record).encode())
