"""Chains of definitions that read one another, from the log that a source fills: pipelines, computations and maps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Panes, Productions

Definition: TypeAlias = Pipeline | Computation | Map | Join

Ranged: TypeAlias = Pipeline | Map | Join
"""A definition of which a range of event time can be computed anew: its output depends on the log alone."""


Windowless: TypeAlias = Map | Join
"""A definition that gives rows of records and has no windows whose answers it would keep."""


def before(definition: Definition) -> tuple[Definition, ...]:
    """List the definitions whose panes or productions this one reads; none where it reads logs of sources alone."""
    return tuple(log.of for log in definition.log.parts if isinstance(log, Panes | Productions))


def chain(definition: Definition) -> tuple[Definition, ...]:
    """List a definition after those that it reads, directly or not; each is after those that it reads itself.

    >>> from tailrace.model.samples.visits import example
    >>> [one.name for one in chain(example())]
    ['visits']
    """
    earlier = {one.name: one for direct in before(definition) for one in chain(direct)}
    return (*earlier.values(), definition)


def keeping_answers(definitions: Iterable[Definition]) -> frozenset[str]:
    """Name the pipelines whose current answers are kept in a table where these definitions are deployed.

    They are the last stages, for readers read those, and the earlier stages that ask for a table (`answers=True`).
    """
    return frozenset(
        stage.name
        for one in definitions
        for stage in chain(one)
        if isinstance(stage, Pipeline) and (stage is one or stage.answers)
    )
