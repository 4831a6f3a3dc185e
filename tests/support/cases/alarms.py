"""A fifth kind of definition, made outside the package: alarms, the records of a log that are over a bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tailrace import Col, Derive, Log, Map, Match
from tailrace.backfill.backfill import backfill_of
from tailrace.engines.duckdb.engine import duck_side
from tailrace.engines.spark.engine import spark_side
from tailrace.lake.corrections.stage_ranges import ranges_of
from tailrace.lake.read.status import kept_state
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.definition.definition import Windowless
from tailrace.model.logs.derived_logs import Productions
from tailrace.plan.plans import plan_kind
from tailrace.sql.records.stage_records import productions
from tailrace.sql.results.output_rows import output_rows
from tailrace.trace.tracing import follow
from tailrace.verify.audit import audit_of
from tailrace.verify.replay import replay_of


@dataclass(frozen=True, kw_only=True)
class Alarm(Windowless):
    """An alarm for each record of a log whose `column` is over a bound. It is a map, said in fewer words."""

    kind_name = "alarm"

    name: str
    log: Log
    column: str
    over: int

    @cached_property
    def rows(self) -> Map:
        """The map that gives the alarms."""
        by = Derive({"by": Col(self.column) - self.over})
        return Map(name=self.name, log=self.log, each=by, keep=Match("by", ">", 0), what=(self.column, "by"))

    @property
    def each(self) -> Any:
        return self.rows.each

    @property
    def produced(self) -> Productions[Map]:
        return self.rows.produced

    @property
    def meaning(self) -> dict[str, Any]:
        return self.rows.meaning

    @property
    def fingerprint(self) -> str:
        return self.rows.fingerprint


VERBS: tuple[Any, ...] = (
    tables_of, output_rows, productions, duck_side, spark_side, kept_state, ranges_of,
    backfill_of, audit_of, replay_of, plan_kind, follow,
)  # fmt: skip
"""The verbs of the layers that have to know a kind; a stream and the choice of an engine go by the base class."""


def _as_map(verb: Any) -> Any:
    return lambda alarm, *more, **named: verb(alarm.rows, *more, **named)


for verb in VERBS:
    verb.register(Alarm, _as_map(verb))
