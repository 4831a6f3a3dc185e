"""A computation run over a sample by the reference execution, and its plot (MillWheel, 4.1).

It needs neither Spark nor a lake: it shows what a computation produces from a few records before it is shipped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from tailrace.model.base.time import BEGINNING, instant, moment
from tailrace.model.definition.computation import Computation
from tailrace.model.samples.sample_records import Epochs
from tailrace.model.step.chain_fold import ChainRun, fold_read
from tailrace.model.step.computation_state import LateInput, Production
from tailrace.model.windows.panes import Key
from tailrace.observe.plots.plot import PanePlot, PlotProduction, PlotRecord, PlotTable
from tailrace.observe.plots.simulation import plot_value


@dataclass(frozen=True)
class Producing:
    """A computation, folded over epochs as it reads them by the reference execution."""

    computation: Computation
    epochs: Epochs

    @cached_property
    def run(self) -> ChainRun:
        """The result of the fold: the productions, and the records left out, in order."""
        return fold_read(self.computation, self.epochs)

    @property
    def keys(self) -> list[Key]:
        """The keys that something was produced for, those with the most productions first."""
        return [key for key, _ in Counter(one.key for one in self.run.productions).most_common()]

    def productions(self, key: Key | None) -> list[Production]:
        """Return the productions of one key, or of all, in the order in which they were produced."""
        return [one for one in self.run.productions if key is None or one.key == key]

    @property
    def late(self) -> list[LateInput]:
        """The records that came too late."""
        return [one for one in self.run.late if isinstance(one, LateInput)]

    @cached_property
    def produced_at(self) -> dict[int, int]:
        """The processing time of each epoch, in microseconds."""
        return {clock.epoch: clock.processing_time for _, clock in self.epochs}

    def plot(self, key: Key, result: str) -> PanePlot:
        """Plot the records and productions of one key over both times; `result` names the column of the labels."""
        computation = self.computation
        named = ", ".join(f"{name} = {value}" for name, value in zip(computation.key, key, strict=True))
        made = self.productions(key)
        columns = ["produced", "event time", *computation.produces]
        rows = [
            [moment(self.produced_at[one.epoch]), moment(one.at), *map(plot_value, one.values.values())] for one in made
        ]
        return PanePlot(
            title=f"{computation.name}, simulated",
            subtitle=f"{type(computation).__name__} by {', '.join(computation.key) or 'nothing'}",
            key=named or "all records",
            value=result,
            records=self._dots(key),
            productions=[
                PlotProduction(moment(one.at), moment(self.produced_at[one.epoch]), f"{plot_value(one.values[result])}")
                for one in made
            ],
            watermark=[
                (moment(clock.processing_time), moment(clock.watermark))
                for _, clock in self.epochs
                if clock.watermark > BEGINNING
            ],
            tables=[PlotTable("What was produced, in its order", columns, rows)] if made else [],
        )

    def _dots(self, key: Key) -> list[PlotRecord]:
        log, dots = self.computation.log, list[PlotRecord]()
        late = {id(one.record) for one in self.late}
        for bundle, clock in self.epochs:
            for record in bundle:
                if tuple(record.get(name) for name in self.computation.key) == key:
                    at = instant(record[log.event_time])
                    seen = instant(record[log.arrival_time]) if log.arrival_time else clock.processing_time
                    dots.append(PlotRecord(moment(at), moment(seen), "1", too_late=id(record) in late))
        return dots
