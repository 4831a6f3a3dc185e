"""Chains of definitions: the first definition reads a source's log, and each later definition reads the output of the
previous definition.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TypeVar

from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Panes, Productions, Union
from tailrace.model.logs.log import Log

D = TypeVar("D", bound=Definition)
T = TypeVar("T")


def chain(definition: Definition) -> tuple[Definition, ...]:
    """Return all definitions that a definition reads, directly or indirectly, followed by the definition itself.

    In the result, every definition comes after the definitions that it reads.

    >>> from tailrace.model.samples.visits import example
    >>> [one.name for one in chain(example())]
    ['visits']
    """
    earlier = {one.name: one for direct in definition.before for one in chain(direct)}
    return (*earlier.values(), definition)


def renamed(definition: D, name: str, others: Mapping[str, Definition]) -> D:
    """Return a copy of a definition with another name, which reads the definitions in `others`.

    `others` maps the name of a definition that the original reads to the definition that the copy reads in its place.
    The name may be a name that no regular definition can have.
    """
    made = reading(definition, lambda log: _of_others(log, others))
    object.__setattr__(made, "name", name)
    return made


def reading(definition: D, instead: Callable[[Log], Log]) -> D:
    """Return a copy of a definition that reads other logs: `instead` returns the log to read in place of a log.

    The copy is not validated, so it may be a definition that a user could not write.
    """
    made = copied(definition)
    for option in definition.log_options:
        object.__setattr__(made, option, instead(getattr(definition, option)))
    return made


def copied(original: T) -> T:
    """Return a copy of a definition or a log, without the values that were computed from its options."""
    made = copy.copy(original)
    for kind in type(original).__mro__:
        for attribute, value in vars(kind).items():
            if isinstance(value, cached_property):
                made.__dict__.pop(attribute, None)
    return made


def _of_others(log: Log, others: Mapping[str, Definition]) -> Log:
    """Return a log that consists of the output of other definitions."""
    made = copy.copy(log)
    if isinstance(log, Union):
        object.__setattr__(made, "of", {member: _of_others(part, others) for member, part in log.members.items()})
    elif isinstance(log, Panes | Productions) and log.of.name in others:
        object.__setattr__(made, "of", others[log.of.name])
    return made


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
