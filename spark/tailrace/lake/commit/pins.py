"""Pins: tags that keep a snapshot from expiry while somebody reads it.

A reader of one snapshot by its id, such as an audit or a replay, may take longer than a running stream keeps it.
After a time, maintenance removes the pins of readers that died.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import last_time, milliseconds

_NAME = re.compile(r"pin_(\d+)_[0-9a-f]{8}")


@contextmanager
def pinned(lake: Lake, snapshots: Mapping[str, int | None]) -> Iterator[None]:
    """Keep a snapshot of each of these tables until the block ends. Raises `LakeError` where one has expired."""
    # A pin is no older than what it keeps: where this machine's clock is behind, it would go at once.
    now = max([milliseconds(), *(last_time(lake.table(table).metadata) for table in snapshots)])
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


def pinned_at(name: str) -> int | None:
    """Read the time at which a pin was made off its name, in milliseconds; None for a name that is no pin's.

    >>> pinned_at("pin_1700000000000_0123abcd"), pinned_at("stream_3")
    (1700000000000, None)
    """
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None
