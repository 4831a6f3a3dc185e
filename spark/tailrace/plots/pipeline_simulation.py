"""Simulate a pipeline on a sample of records, and plot the result (Dataflow Model, 2.4).

The reference execution (plain Python that defines the correct results) computes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from tailrace.model.base.time import instant, moment
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.source_text import written
from tailrace.model.logs.log import sign_of
from tailrace.model.samples.sample_records import Epochs
from tailrace.model.step.reference import ReferenceRun, fold_stages, prepared
from tailrace.model.step.stages import changes
from tailrace.model.windows.panes import Key, Pane, Rejected
from tailrace.plots.plot import PanePlot, PlotPane, PlotRecord, PlotTable, is_bounded
from tailrace.plots.simulation import Simulation, key_text, plot_value


class PipelineSimulation(Simulation[Pipeline]):
    """The simulation of a pipeline on the epochs of its first stage's input."""

    @cached_property
    def runs(self) -> tuple[ReferenceRun, ...]:
        """The results of the stages, in the order of the stages.

        A result contains a stage's panes, and the records that the stage left out.
        """
        return fold_stages(self.definition, self.epochs)

    @property
    def run(self) -> ReferenceRun:
        """The result of the pipeline's last stage, which is the last item of `runs`."""
        return self.runs[-1]

    @cached_property
    def bundles(self) -> Epochs:
        """The epochs of the last stage's input.

        If the pipeline has several stages, the records of these epochs are the panes of the stage before the last. If
        the pipeline has only one stage, the records are the records of the source.
        """
        earlier = self.definition.earlier
        if earlier is None:
            return self.epochs
        fired: dict[int, list[Pane]] = {}
        for pane in self.runs[-2].panes:
            fired.setdefault(pane.version.epoch, []).append(pane)
        return [(changes(earlier, fired.get(clock.epoch, ())), clock) for _, clock in self.epochs]

    @property
    def outputs(self) -> Iterator[Key]:
        return (pane.key for pane in self.run.panes)

    @property
    def results(self) -> list[str]:
        return list(self.definition.what)

    @property
    def rejected(self) -> list[Rejected]:
        return [bad for run in self.runs for bad in run.rejected]

    def panes(self, key: Key) -> list[Pane]:
        """Return the panes of one key, in the order in which they fired."""
        return [pane for pane in self.run.panes if pane.key == key]

    def plot(self, key: Key, result: str, title: str = "", subtitle: str = "") -> PanePlot:
        """Plot one result of the pipeline for one key, in the style of the paper."""
        own = self.panes(key)
        return PanePlot(
            title=title or f"{self.definition.name}, simulated",
            subtitle=subtitle or answers_text(self.definition),
            key=key_text(self.definition.key, key),
            value=result,
            panes=[PlotPane.of(pane, plot_value(pane.values[result])) for pane in own],
            records=self._dots(key, result),
            watermark=self.watermark_line,
            tables=[pane_table(own)] if own else [],
        )

    def _dots(self, key: Key, result: str) -> list[PlotRecord]:
        log, dots = self.definition.log, []
        column = self.definition.what[result].column
        late = Counter(id(one.record) for one in self.run.late)
        for bundle, clock in self.bundles:
            for source, record in prepared(self.definition, bundle):
                if tuple(record.get(name) for name in self.definition.key) != key:
                    continue
                at = instant(record[log.event_time])
                seen = instant(record[log.arrival_time]) if log.arrival_time else clock.processing_time
                windows = len(self.definition.windows_of(at, record))
                label = "1" if column is None else f"{plot_value(record.get(column))}"
                label = label if sign_of(record) > 0 else f"−{label}"
                lost = bool(late[id(source)]) and late[id(source)] >= windows
                # If an earlier stage has a single window for all of event time, its answer has no event time. The plot
                # then uses the answer's arrival time instead.
                happened = moment(at) if is_bounded(moment(at)) else moment(seen)
                dots.append(PlotRecord(happened, moment(seen), label, too_late=lost))
        return dots


def answers_text(pipeline: Pipeline) -> str:
    """Format a pipeline's four parts in one line: what, where, when and how.

    >>> from tailrace.model.samples import examples
    >>> answers_text(examples.figure(12))
    'Sum("value") by team · Fixed(minutes(2)) · AfterWatermark(late=AfterCount(1)) · accumulating'
    """
    what = ", ".join(written(combiner).replace("'", '"') for combiner in pipeline.what.values())
    by = f" by {', '.join(pipeline.key)}" if pipeline.key else ""
    return f"{what}{by} · {written(pipeline.where)} · {written(pipeline.when)} · {pipeline.how.value}"


def pane_table(panes: Sequence[Pane]) -> PlotTable:
    """Make a table of panes with one row per pane, in the order in which the panes fired."""
    names = list(dict.fromkeys(name for pane in panes for name in pane.values))
    columns = ["fired", "watermark", "window start", "window end", "timing", "", *names, "pane index"]
    rows = []
    for pane in panes:
        times = [_end(pane.processing_time), _end(pane.watermark), _end(pane.window.start), _end(pane.window.end)]
        sign = "take back" if pane.retraction else ""
        values = [plot_value(pane.values.get(name)) for name in names]
        rows.append([*times, pane.timing.value.replace("_", " "), sign, *values, pane.version.index])
    return PlotTable("Panes, in the order in which they fired", columns, rows)


def _end(micros: int) -> object:
    at = moment(micros)
    return at if is_bounded(at) else "–"
