"""Follow a record through the definitions that read it: find its windows, and the panes and answers that count it.

The model's code computes the steps and windows of a record; the outcomes are read from the ledgers, without a JVM. If
an answer counts the record, the next stage receives this answer as a record, which is then followed further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, singledispatch

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import processing_times
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.definition.chain import chain
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import SparkColumns, SparkFrame
from tailrace.model.logs.derived_logs import Arrivals, Union
from tailrace.model.logs.log import Log
from tailrace.trace.computation_trace import through_computation
from tailrace.trace.join_trace import through_join
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.map_trace import through_map
from tailrace.trace.pipeline_trace import in_windows
from tailrace.trace.steps import Record, Step
from tailrace.trace.wanted_records import LandedRecord


@singledispatch
def follow(definition: Definition, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Follow a record into one definition, and yield the outcomes of the record in this definition."""
    raise KindError("trace", definition)


follow.register(Pipeline, in_windows)
follow.register(Map, through_map)
follow.register(Join, through_join)
follow.register(Computation, through_computation)


class Tracing:
    """A tracer that follows records through a definition and all definitions that it reads, with a cache for ledgers.

    Raises `LakeError` if a step of a definition is written for Spark, or if a ledger is missing.
    """

    def __init__(self, lake: Lake, definition: Definition) -> None:
        self.lake, self.ledgers = lake, Ledgers(lake)
        self.chain = [with_set_aside(lake, one) for one in chain(definition)]
        for one in self.chain:
            if any(isinstance(step, SparkColumns | SparkFrame) for step in getattr(one, "each", ())):
                raise LakeError(f"{one.name} has a step that is written for Spark: a record is followed without Spark")

    def of(self, landed: LandedRecord) -> list[Step]:
        """Return the outcomes of a record in all definitions; a definition comes after the definitions it reads."""
        given: dict[str, list[Record]] = {landed.log: [landed.record]}
        steps = list[Step]()
        for one in self.chain:
            own = self._in(one, given)
            given.setdefault(one.name, []).extend(record for step in own for record in step.onward)
            steps += own
        return steps

    def in_last(self, landed: LandedRecord) -> list[Step]:
        """Return the outcomes of a record in the last definition alone, which must read the record's log."""
        return self._in(self.chain[-1], {landed.log: [landed.record]})

    def _in(self, definition: Definition, given: Mapping[str, Sequence[Record]]) -> list[Step]:
        records = self._read(definition.log, given)
        return [step for record in records for step in follow(definition, record, self.ledgers)]

    def _read(self, log: Log, given: Mapping[str, Sequence[Record]]) -> Iterable[Record]:
        """Return those of the followed records in `given` that a definition reads from a log.

        `given` maps the name of a landed log, or of an earlier definition, to the followed records of that log or
        definition.
        """
        if isinstance(log, Union):
            return [one for name, part in log.members.items() for one in log.records(name, given.get(part.name, ()))]
        if isinstance(log, Arrivals):
            times = self._arrivals[log.of.name]
            return [one for record in given.get(log.of.name, ())
                    for one in log.records([record], times[record["_epoch"]])]  # fmt: skip
        return given.get(log.name, ())

    @cached_property
    def _arrivals(self) -> dict[str, dict[int, int]]:
        logs = {one.log.of.name for one in self.chain if isinstance(one.log, Arrivals)}
        return {name: processing_times(self.lake, name) for name in logs}
