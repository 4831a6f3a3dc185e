"""Read single records and keys from ledgers, and cache some results for the records that are traced later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import committed_backfills
from tailrace.lake.schema.filters import among, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.panes import Key
from tailrace.trace.key_history import History, filter_value, history


class Ledgers:
    """The ledgers of a lake, with a cache for tracing several records one after another.

    `backfills` returns the committed backfills of a definition, given by its name, in the order of their generations.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._histories: dict[tuple[str, Key, int], History] = {}
        self.backfills = cache(partial(committed_backfills, lake))

    def history(self, pipeline: Pipeline, key: Key, at: int) -> History:
        """Read the history of those windows of a key that contain an instant."""
        place = pipeline.name, key, at
        if place not in self._histories:
            self._histories[place] = history(self.lake, pipeline, key, at)
        return self._histories[place]

    def rows(self, name: str, kinds: Iterable[str], values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Read the rows of a definition's ledger that have one of the given kinds and the given column values."""
        where = every(among("kind", kinds), *(equal(column, filter_value(value)) for column, value in values.items()))
        found: list[dict[str, Any]] = self.lake.table(ledger_name(name)).scan(row_filter=where).to_arrow().to_pylist()
        return found
