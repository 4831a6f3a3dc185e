"""Clicks as they land, and what is computed of them: visits with strong and weak productions, and what reads those."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tailrace import Count, Fixed, Log, Pipeline, Sessions, Sum, minutes, seconds
from tailrace.model.samples.visits import Visits

START = datetime(2024, 1, 1, tzinfo=UTC)
CLICKS = Log(
    name="clicks",
    columns={"id": "bigint", "who": "string", "at": "timestamp", "seen": "timestamp"},
    event_time="at",
    arrival_time="seen",
    disorder=seconds(20),
)
VISITS = Visits(name="visits", log=CLICKS, key="who", allowed_lateness=seconds(30))
QUICK = Visits(name="quick", log=CLICKS, key="who", ordered=True, productions="weak")
BUSY = Pipeline(
    name="busy",
    log=VISITS.produced,
    key="who",
    what={"visits": Count(), "clicks": Sum("clicks")},
    where=Fixed(minutes(1)),
)
TIMES = Pipeline(name="times", log=QUICK.produced, key="clicks", what={"n": Count()}, where=Sessions(minutes(1)))


def land(folder: Path, first: int, files: int) -> None:
    """Files of twenty clicks each, some of them too late; the same ones each time they are asked for."""
    folder.mkdir(exist_ok=True)
    for number in range(first, first + files):
        chance, lines = random.Random(number), []
        for place in range(20):
            seen = START + timedelta(seconds=80 * number + 4 * place)
            row = {"id": 20 * number + place, "who": chance.choice("abcde"), "seen": seen.isoformat()}
            behind = chance.choice([1, 5, 15, 18, 45, 300])
            lines.append(json.dumps(row | {"at": (seen - timedelta(seconds=behind)).isoformat()}))
        file = folder / f"{number:05}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
