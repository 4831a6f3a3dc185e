"""Find tables whose commits' times are out of order or in the future, and put the times right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.sqlite import changing
from tailrace.lake.catalog.transactions import unmoved
from tailrace.lake.metadata.commit_times import EARLIEST, MendTimesUpdate, ahead, milliseconds, out_of_order

SERVED = (
    "the server of a REST catalog writes these times, so `tailrace maintain` cannot: put the clocks right; a commit "
    "that is ahead is right once its time has come, and where times are out of order, have whoever runs the catalog "
    "register the table anew, by metadata with its times in order"
)
"""What to do about wrong times at a REST catalog."""


@dataclass(frozen=True)
class WrongTimes:
    """A table whose times of commits are wrong: `ahead` milliseconds in the future, or out of order where that is 0."""

    table: str
    ahead: int

    def __str__(self) -> str:
        if self.ahead:
            return f"the last commit to {self.table} is {self.ahead / 1000:,.0f} s ahead of this machine's clock"
        return f"the times of the commits to {self.table} are out of order"


def wrong_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """List those of the tables that Spark refuses for the times of their commits."""
    found, now = [], milliseconds()
    for table in tables:
        loaded = lake.find(table)
        if loaded is not None and ((over := ahead(loaded.metadata, now)) or out_of_order(loaded.metadata)):
            found.append(WrongTimes(table, over))
    return found


def can_mend(lake: Lake) -> bool:
    """Tell whether times can be mended: a REST catalog's server writes them itself."""
    return isinstance(changing(lake.catalog), MetastoreCatalog)


def mend_times(lake: Lake, tables: Iterable[str]) -> list[WrongTimes]:
    """Put the times of the tables' commits in order, and none in the future; return what was wrong.

    Does nothing where this machine's own clock is not believed, nor at a REST catalog, whose server writes the times.
    """
    if milliseconds() < EARLIEST or not can_mend(lake):
        return []
    # Its type knows pyiceberg's changes alone.
    catalog: Any = lake.catalog
    wrong = wrong_times(lake, tables)
    for one in wrong:
        while wrong_times(lake, [one.table]):
            loaded = lake.table(one.table)
            try:
                catalog.commit_table(loaded, unmoved(loaded), (MendTimesUpdate(),))
            except CommitFailedException:
                # Another has committed meanwhile: what it made of the table is looked at again.
                continue
    return wrong
