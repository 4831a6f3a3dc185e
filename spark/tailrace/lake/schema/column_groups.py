"""Define groups of columns that belong together in ledgers and tables of answers.

The columns in a group have a fixed order.
"""

from tailrace.model.definition.join_input import SIDES

SPAN = ("window_start", "window_end")
"""The columns with the start and the end of a window."""

VERSION = ("generation", "epoch", "pane_index")
"""The columns of a pane's version, in the order in which they are compared (rule V1)."""

SOURCE = ("source_epoch", "source_partition", "source_offset")
"""The ledger columns that store the position of a row's source record in its log.

The constant `PLACE` has the log's columns for this position.
"""

JOIN_PLACE = {side: tuple(f"{side}_{part}" for part in ("epoch", "partition", "offset")) for side in SIDES}
"""A mapping from each side of a join to the ledger columns that store the position of this side's record in its log."""
