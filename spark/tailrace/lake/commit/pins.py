"""Pin snapshots with tags, so that the snapshots do not expire while they are being read.

A reader of one snapshot, such as an audit or a replay, may take longer than the time for which a running stream keeps
the snapshot. If a reader crashes, maintenance removes the reader's pins after a time.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import last_time, now_milliseconds

_NAME = re.compile(r"pin_(\d+)_[0-9a-f]{8}")


@contextmanager
def pin_snapshots(lake: Lake, snapshots: Mapping[str, int | None]) -> Iterator[None]:
    """Keep the given snapshot of each table from expiring until the `with` block ends.

    `snapshots` maps the name of a table to a snapshot's id. Raises `LakeError` if a snapshot has already expired.
    """
    # A pin's time must not be earlier than the latest commit of its table. Otherwise, if this machine's clock is slow,
    # maintenance would remove the pin at once.
    now = max([now_milliseconds(), *(last_time(lake.table(table).metadata) for table in snapshots)])
    name = f"pin_{now}_{uuid.uuid4().hex[:8]}"
    done = []
    try:
        for table, snapshot in snapshots.items():
            if snapshot is not None:
                lake.name(table, name, snapshot)
                done.append(table)
        yield
    finally:
        for table in done:
            lake.unname(table, (name,))


def pin_time(name: str) -> int | None:
    """Read a pin's creation time, in milliseconds, from its name; return None if the name is not a pin's name.

    >>> pin_time("pin_1700000000000_0123abcd"), pin_time("stream_3")
    (1700000000000, None)
    """
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None
