"""The report of a simulation, by its kind; a custom kind registers the functions of its report with `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any, NamedTuple

from tailrace.cli.commands.look.simulated_computation import computation_data, computation_lines
from tailrace.cli.commands.look.simulated_pipeline import pipeline_data, pipeline_lines
from tailrace.cli.commands.look.simulated_rows import row_data, row_lines
from tailrace.model.definition.definition import KindError
from tailrace.plots.computation_simulation import ComputationSimulation
from tailrace.plots.pipeline_simulation import PipelineSimulation
from tailrace.plots.row_simulation import RowSimulation
from tailrace.plots.simulation import Simulation


class Report(NamedTuple):
    """The functions that report a simulation, of a sample, for one key or all: lines for people, and JSON data."""

    lines: Callable[..., Iterator[Any]]
    data: Callable[..., dict[str, Any]]


@singledispatch
def report(trial: Simulation[Any]) -> Report:
    """Return the report of a simulation's kind."""
    raise KindError("report of a simulation", trial.definition)


report.register(PipelineSimulation, lambda trial: Report(pipeline_lines, pipeline_data))
report.register(ComputationSimulation, lambda trial: Report(computation_lines, computation_data))
report.register(RowSimulation, lambda trial: Report(row_lines, row_data))
