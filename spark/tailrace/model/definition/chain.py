"""Chains of definitions: the first definition reads a source's log, and each later definition reads the output of the
previous definition.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline


def chain(definition: Definition) -> tuple[Definition, ...]:
    """Return all definitions that a definition reads, directly or indirectly, followed by the definition itself.

    In the result, every definition comes after the definitions that it reads.

    >>> from tailrace.model.samples.visits import example
    >>> [one.name for one in chain(example())]
    ['visits']
    """
    earlier = {one.name: one for direct in definition.before for one in chain(direct)}
    return (*earlier.values(), definition)


def keeping_answers(definitions: Iterable[Definition]) -> frozenset[str]:
    """Return the names of the pipelines whose current answers are kept in a table if these definitions are deployed.

    The result contains the last stage of each definition, because users query the answers of last stages. The result
    also contains each earlier stage that has the option `answers=True`.
    """
    return frozenset(
        stage.name
        for one in definitions
        for stage in chain(one)
        if isinstance(stage, Pipeline) and (stage is one or stage.answers)
    )
