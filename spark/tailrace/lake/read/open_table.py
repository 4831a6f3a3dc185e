"""Open a table of a lake for a program of the user's own."""

from __future__ import annotations

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings


def open_table(name: str, settings: Settings | None = None) -> Table:
    """Return a table of the lake as pyiceberg has it, for reading.

    `settings` are the lake's settings; without them, the settings of the working directory are used. Raises `LakeError`
    if the lake or the table does not exist.
    """
    return Lake(settings or Settings(), looks=True).table(name)
