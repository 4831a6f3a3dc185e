"""Find tables with commit times that are out of order or in the future, and correct the times."""

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
"""The advice for tables with wrong commit times in a REST catalog."""


@dataclass(frozen=True)
class WrongTimes:
    """A table with wrong commit times: `ahead` milliseconds in the future or, if it is 0, out of order."""

    table: str
    ahead: int

    def __str__(self) -> str:
        if self.ahead:
            return f"the last commit to {self.table} is {self.ahead / 1000:,.0f} s ahead of this machine's clock"
        return f"the times of the commits to {self.table} are out of order"


def wrong_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """List the tables that Spark rejects because of their commit times."""
    found, now = [], now_milliseconds()
    for table in tables:
        loaded = lake.find(table)
        if loaded is not None and ((over := milliseconds_ahead(loaded.metadata, now)) or out_of_order(loaded.metadata)):
            found.append(WrongTimes(table, over))
    return found


def can_mend(lake: Lake) -> bool:
    """Return True if commit times can be corrected; in a REST catalog, the server writes the times itself."""
    return isinstance(changing_catalog(lake.catalog), MetastoreCatalog)


def mend_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """Put the commit times of tables in order, with no time in the future; return the corrected tables.

    Does nothing if this machine's own clock is not credible, or for a REST catalog, whose server writes the times.
    """
    if now_milliseconds() < EARLIEST or not can_mend(lake):
        return []
    # `Any`, because the declared type allows only pyiceberg's own changes.
    catalog: Any = lake.catalog
    wrong = wrong_times(lake, tables)
    for one in wrong:
        while wrong_times(lake, [one.table]):
            loaded = lake.table(one.table)
            # If another writer commits meanwhile, the table is checked again.
            with suppress(CommitFailedException):
                catalog.commit_table(loaded, unchanged_refs(loaded), (MendTimesUpdate(),))
    return wrong
