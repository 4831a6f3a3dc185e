"""Simulate a computation on a sample of records, and plot the result (MillWheel, 4.1).

The reference execution (plain Python that defines the correct results) computes the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tailrace.model.base.time import instant, moment
from tailrace.model.definition.computation import Computation
from tailrace.model.step.computation_state import LateInput, Production
from tailrace.model.windows.panes import Key
from tailrace.plots.plot import PanePlot, PlotProduction, PlotRecord, PlotTable
from tailrace.plots.simulation import ChainSimulation, key_text, plot_value


class ComputationSimulation(ChainSimulation[Computation]):
    """The simulation of a computation on the epochs of its input."""

    @property
    def outputs(self) -> Iterator[Key]:
        return (one.key for one in self.run.productions)

    @property
    def results(self) -> list[str]:
        return list(self.definition.produces)

    def productions(self, key: Key | None) -> list[Production]:
        """Return the productions (output records) of a key, or of all keys if `key` is None, in the order of
        production.
        """
        return [one for one in self.run.productions if key is None or one.key == key]

    @property
    def late(self) -> list[LateInput]:
        """The records that arrived too late."""
        return [one for one in self.run.late if isinstance(one, LateInput)]

    @cached_property
    def produced_at(self) -> dict[int, int]:
        """A mapping from the number of each epoch to its processing time, in microseconds."""
        return {clock.epoch: clock.processing_time for _, clock in self.epochs}

    def plot(self, key: Key, result: str) -> PanePlot:
        """Plot one key's records and productions over event time and processing time.

        `result` is the column whose values label the productions.
        """
        computation = self.definition
        made = self.productions(key)
        columns = ["produced", "event time", *computation.produces]
        rows = [
            [moment(self.produced_at[one.epoch]), moment(one.at), *map(plot_value, one.values.values())] for one in made
        ]
        return PanePlot(
            title=f"{computation.name}, simulated",
            subtitle=f"{type(computation).__name__} by {', '.join(computation.key) or 'nothing'}",
            key=key_text(computation.key, key),
            value=result,
            records=self._dots(key),
            productions=[
                PlotProduction(moment(one.at), moment(self.produced_at[one.epoch]), f"{plot_value(one.values[result])}")
                for one in made
            ],
            watermark=self.watermark_line,
            tables=[PlotTable("What was produced, in its order", columns, rows)] if made else [],
        )

    def _dots(self, key: Key) -> list[PlotRecord]:
        log, dots = self.definition.log, list[PlotRecord]()
        late = {id(one.record) for one in self.late}
        for bundle, clock in self.epochs:
            for record in bundle:
                if tuple(record.get(name) for name in self.definition.key) == key:
                    at = instant(record[log.event_time])
                    seen = instant(record[log.arrival_time]) if log.arrival_time else clock.processing_time
                    dots.append(PlotRecord(moment(at), moment(seen), "1", too_late=id(record) in late))
        return dots
