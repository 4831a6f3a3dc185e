"""Name the columns that belong together in ledgers and in tables of answers, in their order."""

from tailrace.model.definition.join_input import SIDES

SPAN = ("window_start", "window_end")
"""A window's bounds."""

VERSION = ("generation", "epoch", "pane_index")
"""A pane's version: the columns in the order in which they count (rule V1)."""

SOURCE = ("source_epoch", "source_partition", "source_offset")
"""Where a row's record is in the log: the ledger's names for `PLACE`."""

JOIN_PLACE = {side: tuple(f"{side}_{part}" for part in ("epoch", "partition", "offset")) for side in SIDES}
"""Where the records of a pair are in the logs: the names of a join's ledger for the `PLACE` of each side's."""
