"""Simulate a definition on a sample of records, so that people can check the definition before deployment.

The reference execution (plain Python that defines the correct results) computes the result.

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
    """The simulation of a definition by the reference execution.

    `epochs` is the input of the definition's first stage.
    """

    definition: D
    epochs: Epochs

    @property
    def outputs(self) -> Iterable[Key]:
        """The key of each output, in order. A key occurs once for each of its outputs. An output is a pane or a
        production.
        """
        return ()

    @property
    def results(self) -> Sequence[str]:
        """The columns that a plot can show. The list is empty if there is nothing to draw."""
        return ()

    @property
    def rejected(self) -> Sequence[Rejected]:
        """The records that the definition rejected."""
        raise NotImplementedError

    @cached_property
    def keys(self) -> list[Key]:
        """The keys that have outputs; the key with the most outputs comes first."""
        return [key for key, _ in Counter(self.outputs).most_common()]

    def plot(self, key: Key, result: str) -> PanePlot:
        """Plot one result column for one key, over event time and processing time."""
        raise NotImplementedError

    @property
    def watermark_line(self) -> list[tuple[Any, Any]]:
        """The watermark over processing time, as pairs: a processing time, and the watermark at that time."""
        clocks = (clock for _, clock in self.epochs if clock.watermark > BEGINNING)
        return [(moment(clock.processing_time), moment(clock.watermark)) for clock in clocks]


class ChainSimulation(Simulation[D]):
    """The base class for the simulations of computations, maps and joins."""

    @cached_property
    def run(self) -> ChainRun:
        """The result of the simulation: the outputs, the late records and the rejected records, in order."""
        return fold_read(self.definition, self.epochs)

    @property
    def rejected(self) -> Sequence[Rejected]:
        return self.run.rejected


def key_text(names: Sequence[str], key: Key) -> str:
    """Format a key for a plot, with the names of its columns."""
    return ", ".join(f"{name} = {value}" for name, value in zip(names, key, strict=True)) or "all records"


def plot_value(value: Any) -> Value:
    """Convert a result for plots and tables.

    Numbers stay numbers (a `Decimal` becomes a float), None stays None, and all other values become text.
    """
    if isinstance(value, Decimal):
        return float(value)
    return (
        value if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)) else f"{value}"
    )
