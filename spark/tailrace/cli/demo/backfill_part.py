"""Run the backfill of the demo, print the answers that it changed, and prove that it changed no other answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from tailrace.backfill.backfill import backfill
from tailrace.backfill.result import Backfilled
from tailrace.cli.demo.demo_tables import Answers, DemoTables, Span
from tailrace.cli.demo.story import Story
from tailrace.cli.demo.tour_page import changed_keys, to_a_tenth
from tailrace.cli.terminal.console import table
from tailrace.cli.terminal.formats import quantity, span
from tailrace.model.base.time import instant, moment
from tailrace.trace.key_history import LedgerPane


@dataclass
class CorrectedAnswers:
    """The results of running a backfill twice, and the rows of the answers before and after the first run."""

    done: Backfilled
    again: Backfilled
    before: int
    after: int
    old: Answers
    new: Answers

    @classmethod
    def run(cls, tables: DemoTables, first: datetime, last: datetime) -> CorrectedAnswers:
        """Run the backfill of a range twice. The second run should change no row."""
        before = tables.snapshot()
        range_ = (instant(first), instant(last))
        [done] = backfill(tables.lake, tables.pipeline, *range_, reason="the demo's correction")
        after = tables.snapshot()
        [again] = backfill(tables.lake, tables.pipeline, *range_, reason="the demo's correction, once more")
        return cls(done, again, before, after, tables.answers(before), tables.answers(after))

    @property
    def alone(self) -> int:
        """The number of answers that are equal before and after the backfill in every column, including the version."""
        return sum(1 for key, answer in self.old.items() if self.new.get(key) == answer)

    @property
    def clean(self) -> bool:
        """Whether the backfill changed exactly as many rows as it reports, and its second run changed no row.

        Each changed row must also have the backfill's generation as its version.
        """
        keys = changed_keys(self.old, self.new)
        meant = all(key not in self.new or self.new[key]["generation"] == self.done.run.generation for key in keys)
        return meant and len(keys) == self.done.changed + self.done.retracted and self.again.changed == 0

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "backfill_changed": self.done.changed,
            "backfill_untouched": self.done.untouched,
            "backfill_retracted": self.done.retracted,
            "backfill_again_changed": self.again.changed,
            "backfill_seconds": round(self.done.seconds, 1),
            "rows_left_alone": self.alone,
            "only_the_backfill_changed_rows": self.clean,
        }


def show_backfill(story: Story, corrected: CorrectedAnswers, tables: DemoTables, wide: Span, shown: Span) -> None:
    """Print the changes that a backfill made, and whether any other row was changed."""
    done, differ = corrected.done, len(changed_keys(corrected.old, corrected.new))
    story.tell("corrected", changed=quantity(done.changed, "window"), done=done, took=span(done.seconds))
    story.show(_history(tables, wide, shown))
    if not corrected.clean:
        story.tell("unclean", style="bold red", differ=quantity(differ, "row"), corrected=corrected)
        return
    story.tell("clean", corrected=corrected, rows=quantity(len(corrected.new), "row"), differ=differ)
    story.tell("again")


def _history(tables: DemoTables, wide: Span, shown: Span) -> Table:
    """Create a table with three panes per hour: the on-time pane, the stream's last pane, and the current pane."""
    numbers = ("on time", "stream's end", "now")
    rows = table("hour", *numbers, right=numbers)
    panes = [pane for pane in tables.panes(wide) if not pane.retraction]
    for start in sorted({pane.window.start for pane in panes}):
        own = [pane for pane in panes if pane.window.start == start]
        streamed = [pane for pane in own if pane.timing != "correction"]
        on_time = next((pane for pane in streamed if pane.timing == "on_time"), None)
        cells = [_cell(pane) for pane in (on_time, streamed[-1] if streamed else None, own[-1])]
        rows.add_row(f"{moment(start):%H:%M}", *cells, style="bold" if moment(start) == shown.first else "")
    return rows


def _cell(pane: LedgerPane | None) -> str:
    return "–" if pane is None else f"{pane.values['flights']}  {to_a_tenth(pane.values['mean_delay'])} min".rjust(14)
