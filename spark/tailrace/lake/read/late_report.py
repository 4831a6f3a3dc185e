"""Report the records that came too late for a definition, by ranges that a backfill would repair (rule X6)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Protocol

from pyiceberg.table import Table

from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_join_records import LateJoinRecords
from tailrace.lake.read.late_records import Came, Groups, LateReport, LateWindows, late_groups, late_ranges
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.pipeline import Pipeline


class Late(Protocol):
    """The late records of a kind of definition."""

    def came(self) -> Iterable[Came]: ...

    def left(self, came: Iterable[Came], runs: Iterable[Run]) -> list[Came]: ...

    def closed(self, watermark: int) -> int: ...


@singledispatch
def late_of(definition: object, lake: Lake, ledger: Table, groups: Groups) -> Late:
    """Return the late records of a definition that has some (`Definition.repairs_late`)."""
    raise KindError("report of late records", definition)


late_of.register(Pipeline, LateWindows)
late_of.register(Join, LateJoinRecords)


def late_report(lake: Lake, definition: Definition, groups: Groups = late_groups) -> LateReport:
    """Report the records that came too late for one stage or join; an engine may group those of windows by `groups`.

    Raises `LakeError` where there is no ledger, and `OtherDefinitionError` where that is another definition's.
    """
    check_meaning(lake, definition)
    ledger = lake.table(ledger_name(definition.name))
    late = late_of(definition, lake, ledger, groups)
    came = list(late.came())
    left = late.left(came, Runs(lake, definition).all() if lake.has(runs_name(definition.name)) else [])
    total = sum(one.records for one in came)
    repaired = total - sum(one.records for one in left)
    closed = late.closed(head_of(ledger).number("watermark", BEGINNING))
    return LateReport(definition, total, repaired, tuple(late_ranges(left)), closed)
