"""Find the tables whose commit times are out of order or in the future, and correct these times."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.sqlite import changing_catalog
from tailrace.lake.catalog.transactions import unchanged_refs
from tailrace.lake.metadata.commit_times import (
    EARLIEST,
    MendTimesUpdate,
    milliseconds_ahead,
    now_milliseconds,
    out_of_order,
)

SERVED = (
    "the server of a REST catalog writes these times, so `tailrace maintain` cannot: put the clocks right; a commit "
    "that is ahead is right once its time has come, and where times are out of order, have whoever runs the catalog "
    "register the table anew, by metadata with its times in order"
)
"""The advice to the user if a table in a REST catalog has wrong commit times."""


@dataclass(frozen=True)
class WrongTimes:
    """A table with wrong commit times.

    `ahead` is the time by which the last commit is in the future, in milliseconds; if `ahead` is 0, the commit times
    are out of order.
    """

    table: str
    ahead: int

    def __str__(self) -> str:
        if self.ahead:
            return f"the last commit to {self.table} is {self.ahead / 1000:,.0f} s ahead of this machine's clock"
        return f"the times of the commits to {self.table} are out of order"


def wrong_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """List the tables that Spark would reject because their commit times are out of order or in the future."""
    found, now = [], now_milliseconds()
    for table in tables:
        loaded = lake.find(table)
        if loaded is not None and ((over := milliseconds_ahead(loaded.metadata, now)) or out_of_order(loaded.metadata)):
            found.append(WrongTimes(table, over))
    return found


def can_mend(lake: Lake) -> bool:
    """Return True if Tailrace can correct commit times.

    In a REST catalog, Tailrace cannot correct commit times, because the server writes these times.
    """
    return isinstance(changing_catalog(lake.catalog), MetastoreCatalog)


def mend_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """Correct commit times that are out of order or in the future; return the tables that were corrected.

    The function does nothing for a REST catalog, because the server writes the times. The function also does nothing if
    this machine's own clock is not credible.
    """
    if now_milliseconds() < EARLIEST or not can_mend(lake):
        return []
    # The type is `Any`, because the declared type of the catalog accepts only pyiceberg's own table updates.
    catalog: Any = lake.catalog
    wrong = wrong_times(lake, tables)
    for one in wrong:
        while wrong_times(lake, [one.table]):
            loaded = lake.table(one.table)
            # If another writer commits in the meantime, the loop checks the table again.
            with suppress(CommitFailedException):
                catalog.commit_table(loaded, unchanged_refs(loaded), (MendTimesUpdate(),))
    return wrong
