"""Chains of definitions that read one another, from the log that a source fills to the last one."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline


def chain(definition: Definition) -> tuple[Definition, ...]:
    """List the definitions that a definition reads, directly or not, and itself, each after the ones that it reads.

    >>> from tailrace.model.samples.visits import example
    >>> [one.name for one in chain(example())]
    ['visits']
    """
    earlier = {one.name: one for direct in definition.before for one in chain(direct)}
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
