"""A definition that the reference execution folds over a sample, so that people can check it before deployment.

A simulation needs neither Spark nor a lake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, TypeVar

from tailrace.model.base.time import BEGINNING, moment
from tailrace.model.definition.definition import Definition
from tailrace.model.samples.sample_records import Epochs
from tailrace.model.step.chain_fold import ChainRun, fold_read
from tailrace.model.windows.panes import Key, Rejected
from tailrace.plots.plot import PanePlot, Value

D = TypeVar("D", bound=Definition)


@dataclass(frozen=True)
class Simulation(Generic[D]):
    """A definition that the reference execution folds over `epochs`, the input of the definition's first stage."""

    definition: D
    epochs: Epochs

    @property
    def outputs(self) -> Iterable[Key]:
        """The key of each output, where an output is a pane or a production."""
        return ()

    @property
    def results(self) -> Sequence[str]:
        """The columns that a plot can show; empty if there is nothing to draw."""
        return ()

    @property
    def rejected(self) -> Sequence[Rejected]:
        """The records that the definition rejected."""
        raise NotImplementedError

    @cached_property
    def keys(self) -> list[Key]:
        """The keys that have outputs, in descending order of their number of outputs."""
        return [key for key, _ in Counter(self.outputs).most_common()]

    def plot(self, key: Key, result: str) -> PanePlot:
        """Plot one key and one of the result columns over event time and processing time."""
        raise NotImplementedError

    @property
    def watermark_line(self) -> list[tuple[Any, Any]]:
        """The watermark over processing time, as pairs of instants for a plot."""
        clocks = (clock for _, clock in self.epochs if clock.watermark > BEGINNING)
        return [(moment(clock.processing_time), moment(clock.watermark)) for clock in clocks]


class ChainSimulation(Simulation[D]):
    """A simulation of a computation, a map or a join, which are folded in one run."""

    @cached_property
    def run(self) -> ChainRun:
        """The result of the fold: the outputs, the late records and the rejected records, in order."""
        return fold_read(self.definition, self.epochs)

    @property
    def rejected(self) -> Sequence[Rejected]:
        return self.run.rejected


def key_text(names: Sequence[str], key: Key) -> str:
    """Format a key for a plot, with the names of its columns."""
    return ", ".join(f"{name} = {value}" for name, value in zip(names, key, strict=True)) or "all records"


def plot_value(value: Any) -> Value:
    """Convert a result for plots and tables: numbers stay numbers (a `Decimal` becomes a float); all else is text."""
    if isinstance(value, Decimal):
        return float(value)
    return (
        value if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)) else f"{value}"
    )
