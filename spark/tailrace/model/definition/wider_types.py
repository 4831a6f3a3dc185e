"""A definition over logs with narrower types, and whether wider types of its columns leave its answers as they are.

A value means the same in a wider type (`types.widens`): it is the same number, it compares and sorts in the same way,
and it has the same text. Expressions calculate with wide types, combiners add up exactly, and Python code gets the same
objects. So the answers are the same, apart from their types, unless code sees the types of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tailrace.model.combiners.basic import Combiner
from tailrace.model.combiners.own import OwnCombiner
from tailrace.model.definition.chain import D, chain, copied, reading
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import SparkColumns, SparkFrame
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Columns, Log

Types = Mapping[str, Mapping[str, str]]
"""The types of columns by the name of their log."""


def with_types(definition: D, types: Types) -> D:
    """Return a copy of a definition whose logs, which sources fill, have other types of some columns.

    The definitions that it reads are copied in the same way. The copy is not validated.

    >>> from tailrace.model.samples.visits import example
    >>> dict(with_types(example(), {"clicks": {"who": "bigint"}}).log.columns)
    {'who': 'bigint', 'at': 'timestamp'}
    """
    made: dict[str, Definition] = {}
    for earlier in chain(definition)[:-1]:
        made[earlier.name] = reading(earlier, lambda log: _log_with(log, types, made))
    return reading(definition, lambda log: _log_with(log, types, made))


def reading_outputs(log: Log, made: Mapping[str, Definition]) -> Log:
    """Return a log with the output of other definitions: of those in `made`, which has definitions by their names."""
    if isinstance(log, Union):
        return replace(log, of={member: reading_outputs(part, made) for member, part in log.members.items()})
    if not isinstance(log, Panes | Productions):
        return log
    changed, of = copied(log), made[log.of.name]
    given: Log = of.panes if isinstance(of, Pipeline) else of.produced  # type: ignore[attr-defined]
    object.__setattr__(changed, "of", of)
    object.__setattr__(changed, "columns", given.columns)
    return changed


def _log_with(log: Log, types: Types, made: Mapping[str, Definition]) -> Log:
    if isinstance(log, Union):
        return replace(log, of={member: _log_with(part, types, made) for member, part in log.members.items()})
    if isinstance(log, Arrivals):
        return replace(log, of=_log_with(log.of, types, made))
    if isinstance(log, Panes | Productions):
        return reading_outputs(log, made)
    changed = copied(log)
    own = {name: type for name, type in types.get(log.name, {}).items() if log.columns.get(name, type) != type}
    object.__setattr__(changed, "columns", Columns({**log.declared, **own}))
    return changed


def code_with_types(definition: Definition) -> Iterator[str]:
    """Yield, as text, the parts of a definition whose code sees the types of columns, and not just their values."""
    for step in getattr(definition, "each", ()):
        if isinstance(step, SparkColumns | SparkFrame):
            yield f"the step {type(step).__name__}"
    what: Mapping[str, Combiner] = definition.what if isinstance(definition, Pipeline) else {}
    for name, combiner in what.items():
        built_in = type(combiner).__module__.startswith("tailrace.")
        if not built_in and not isinstance(combiner, OwnCombiner):
            yield f"the combiner {type(combiner).__name__} of {name}"
