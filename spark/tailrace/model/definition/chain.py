"""Chains of definitions that read one another, from the log that a source fills to the last one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

from tailrace.model.definition import definition as kinds
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline

# The closed unions of before `definition.definition`: they go once no module asks a definition for its class.
Definition: TypeAlias = Pipeline | Computation | Map | Join
Ranged: TypeAlias = Pipeline | Map | Join
Windowless: TypeAlias = Map | Join


def chain(definition: kinds.Definition) -> tuple[Definition, ...]:
    """List the definitions that a definition reads, directly or not, and itself, each after the ones that it reads.

    >>> from tailrace.model.samples.visits import example
    >>> [one.name for one in chain(example())]
    ['visits']
    """
    earlier = {one.name: one for direct in definition.before for one in chain(direct)}
    return cast("tuple[Definition, ...]", (*earlier.values(), definition))


def keeping_answers(definitions: Iterable[kinds.Definition]) -> frozenset[str]:
    """Name the pipelines whose current answers are kept in a table where these definitions are deployed.

    They are the last stages, for readers read those, and the earlier stages that ask for a table (`answers=True`).
    """
    return frozenset(
        stage.name
        for one in definitions
        for stage in chain(one)
        if isinstance(stage, Pipeline) and (stage is one or stage.answers)
    )
