"""A definition over a log whose columns had other names, so that it can be compared with the definition of before.

Only built-in parts of a definition are known to read columns by the names that they show. If a definition contains code
of a user, nobody knows what a name in this code stands for, so its columns cannot be renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any

from tailrace.model.base.conditions import Contains, Match, Missing
from tailrace.model.base.expressions import Col
from tailrace.model.base.types import column_of
from tailrace.model.combiners.basic import Combiner
from tailrace.model.definition.chain import D, chain, copied, reading
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.wider_types import reading_outputs
from tailrace.model.logs.log import Columns, Log
from tailrace.model.triggers.trigger import Trigger

Names = Mapping[str, Mapping[str, str]]
"""The former names of columns by their present names, by the name of their log."""

_NAMES = {Col: ("name",), Match: ("column",), Missing: ("column",), Contains: ("column",), Combiner: ("column", "by")}
"""The attributes with names of columns, or paths into columns, by the class that has them."""

_OPTIONS = ("what", "keep", "each", "where")
"""The options of pipelines and maps in which there may be names of columns, in addition to the key and to triggers."""

_CONSTANTS = (str, int, float, Decimal, timedelta, date, Enum, type(None))


def with_names(definition: D, names: Names) -> D | None:
    """Return a copy of a definition whose logs, which sources fill, have other names of some columns.

    Returns None if the definition's parts do not show which columns they read. The copy is not validated.

    >>> from tailrace.model.base.conditions import Match
    >>> from tailrace.model.combiners.basic import Sum
    >>> from tailrace.model.windows.windows import Global
    >>> log = Log(name="sales", columns={"at": "timestamp", "cents": "int"}, event_time="at")
    >>> total = Pipeline(name="total", log=log, what={"sum": Sum("cents")}, where=Global(), keep=Match("cents", ">", 1))
    >>> former = with_names(total, {"sales": {"cents": "price"}})
    >>> former.what["sum"], former.keep
    (Sum(column='price'), Match(column='price', operator='>', value=1))
    """
    made: dict[str, Definition] = {}
    for stage in chain(definition):
        if (former := _stage_with(stage, names, made)) is None:
            return None
        made[stage.name] = former
    return made[definition.name]  # type: ignore[return-value]


def _stage_with(stage: Definition, names: Names, made: Mapping[str, Definition]) -> Definition | None:
    if not any(names.get(log.name) for log in stage.log.parts if log.landed):
        return reading(stage, lambda log: reading_outputs(log, made))
    own = names[stage.log.name] if stage.log.landed else None
    if own is None or not isinstance(stage, Pipeline | Map):
        return None
    parts = {option: getattr(stage, option) for option in _OPTIONS if hasattr(stage, option)}
    if isinstance(stage, Map):
        del parts["what"]
    if not all(map(_is_known, parts.values())) or (isinstance(stage, Pipeline) and _reads(stage.when, own)):
        return None
    former = reading(stage, lambda log: _log_with(log, own))
    for option, value in parts.items():
        object.__setattr__(former, option, _renamed(value, own))
    if isinstance(stage, Pipeline):
        object.__setattr__(former, "key", tuple(own.get(name, name) for name in stage.key))
    return former


def _log_with(log: Log, names: Mapping[str, str]) -> Log:
    changed = copied(log)
    columns = Columns({names.get(name, name): type for name, type in log.declared.items()})
    object.__setattr__(changed, "columns", columns)
    object.__setattr__(changed, "event_time", names.get(log.event_time, log.event_time))
    object.__setattr__(changed, "required", tuple(names.get(name, name) for name in log.required))
    return changed


def _reads(trigger: Trigger, columns: Collection[str]) -> bool:
    """Return True if a trigger may read some of the columns: a measure that does not say what it reads may read any."""
    measures = trigger.measures().values()
    return any(not {*getattr(one, "columns", columns)}.isdisjoint(columns) for one in measures)


def _is_known(value: Any) -> bool:
    """Return True if a part of a definition contains built-in objects and constants alone."""
    if isinstance(value, tuple | list):
        return all(map(_is_known, value))
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, _CONSTANTS):
        return True
    if not is_dataclass(value) or not type(value).__module__.startswith("tailrace.model."):
        return False
    return all(_is_known(getattr(value, field.name)) for field in fields(value))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_renamed(one, names) for one in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: _renamed(one, names) for key, one in value.items()})
    if not is_dataclass(value) or isinstance(value, type):
        return value
    shown = {name for kind, own in _NAMES.items() if isinstance(value, kind) for name in own}
    changed = {}
    for field in fields(value):
        before = getattr(value, field.name)
        after = _paths(before, names) if field.name in shown else _renamed(before, names)
        if field.init and after != before:
            changed[field.name] = after
    return replace(value, **changed) if changed else value


def _paths(given: Any, names: Mapping[str, str]) -> Any:
    """Rename the columns of a path, or of a tuple of paths."""
    if isinstance(given, tuple):
        return tuple(_paths(one, names) for one in given)
    if not isinstance(given, str):
        return given
    column = column_of(given)
    return names.get(column, column) + given[len(column) :]
