"""Write deliveries to JSON-lines files that a stream can read, with one file per interval of delivery time."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

from tailrace.generate.delivery import SECOND, Delivery
from tailrace.model.base.time import text

_MINUTE = 60 * SECOND
_LANDED = 1_388_534_400
"""The modification time that a file gets if its deliveries become known from the instant 0 (1970) on: 2014-01-01, in
seconds since 1970 (see `land`).
"""


def land(
    deliveries: Sequence[Delivery],
    folder: Path,
    *,
    every: int,
    instants: Sequence[str] = (),
    compressed: bool = False,
    wait: Callable[[int], None] | None = None,
) -> Iterator[Path]:
    """Write deliveries to files in a folder, with one file for every `every` microseconds of delivery time.

    If there are several logs, each log has its own subfolder. `instants` names the columns whose values are instants;
    these values are written as text. If `compressed` is True, the files are compressed with gzip. The bytes of the
    files depend only on the deliveries. Each file appears atomically. The name of a file is the start time of its
    interval. `wait` is called with the end of each interval (in microseconds) before the files of that interval appear,
    so that the caller can wait until that time.

    Spark orders files by their modification times, and ignores files that are a week older than the newest file.
    Without `wait`, this function therefore sets the modification times. If the intervals of two files are one minute
    apart, the modification times of these files are one second apart.
    """
    folders = {one.log: folder / (one.log or "") for one in deliveries} or {None: folder}
    for one in folders.values():
        one.mkdir(parents=True, exist_ok=True)
    for number, some in groupby(deliveries, key=lambda one: one.known // every):
        lines: dict[str | None, list[str]] = {}
        for delivery in some:
            lines.setdefault(delivery.log, []).append(_line(delivery, instants))
        name = text(number * every).replace("-", "").replace(":", "")
        if wait is not None:
            wait((number + 1) * every)
        for log, those in lines.items():
            ending, data = "json", ("\n".join(those) + "\n").encode()
            if compressed:
                ending, data = "json.gz", gzip.compress(data, mtime=0)
            file, aside = folders[log] / f"{name}.{ending}", folders[log] / f".{name}.{ending}.writing"
            aside.write_bytes(data)
            if wait is None:
                landed = _LANDED + number * every / _MINUTE
                os.utime(aside, (landed, landed))
            aside.replace(file)
            yield file


def _line(delivery: Delivery, instants: Sequence[str]) -> str:
    """Return a delivery as a line of JSON.

    Decimals are written with all of their digits, which a double could not hold.
    """
    values = {name: text(value) if name in instants else value for name, value in delivery.record.items()}
    return "{" + ",".join(f"{json.dumps(name)}:{_json(value)}" for name, value in values.items()) + "}"


def _json(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, separators=(",", ":"))
