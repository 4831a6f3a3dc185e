"""Create the simulation for any kind of definition.

To support a custom kind, register its simulation class with `simulation.register`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples.sample_records import Epochs
from tailrace.plots.computation_simulation import ComputationSimulation
from tailrace.plots.pipeline_simulation import PipelineSimulation
from tailrace.plots.row_simulation import JoinSimulation, MapSimulation
from tailrace.plots.simulation import Simulation


@singledispatch
def simulation(definition: Definition, epochs: Epochs) -> Simulation[Any]:
    """Return the simulation of a definition. The simulation runs when its results are first accessed.

    `epochs` are the epochs that the first stage reads.
    """
    raise KindError("simulation", definition)


simulation.register(Pipeline, PipelineSimulation)
simulation.register(Computation, ComputationSimulation)
simulation.register(Map, MapSimulation)
simulation.register(Join, JoinSimulation)
