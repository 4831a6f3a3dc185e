"""Define the groups of columns that belong together in ledgers and tables of answers, each in its order."""

from tailrace.model.definition.join_input import SIDES

SPAN = ("window_start", "window_end")
"""The columns with the start and the end of a window."""

VERSION = ("generation", "epoch", "pane_index")
"""The columns of a pane's version, in the order in which they are compared (rule V1)."""

SOURCE = ("source_epoch", "source_partition", "source_offset")
"""The ledger's columns with the position of a row's record in its log; `PLACE` has the log's columns for a position."""

JOIN_PLACE = {side: tuple(f"{side}_{part}" for part in ("epoch", "partition", "offset")) for side in SIDES}
"""For each side of a join, the ledger's columns with the position of the side's record in its log."""
