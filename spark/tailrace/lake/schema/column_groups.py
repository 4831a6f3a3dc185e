"""Name the columns that belong together in ledgers and in tables of answers, in their order."""

SPAN = ("window_start", "window_end")
"""A window's bounds."""

VERSION = ("generation", "epoch", "pane_index")
"""A pane's version: the columns in the order in which they count (rule V1)."""

SOURCE = ("source_epoch", "source_partition", "source_offset")
"""Where a row's record is in the log: the ledger's names for `PLACE`."""
