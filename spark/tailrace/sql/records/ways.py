"""Choose whether a definition's step runs in SQL alone or partly in Python, and list the reasons for Python."""

from __future__ import annotations

from enum import Enum
from functools import singledispatch

from tailrace.model.combiners.basic import Merge
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.triggers.guarded import has_own
from tailrace.sql.records.selections import is_common, may_fail


class Way(Enum):
    """How much of a definition's step is SQL. The choice is the same on both engines, in streams and in backfills."""

    SQL = "sql"
    ASSIGNED = "assigned"
    """Custom code assigns windows to records; everything else is SQL."""
    PYTHON = "python"
    """The model's own step runs in Python: for custom combiners, and for custom windows that merge."""


def way(pipeline: Pipeline) -> Way:
    """Choose how much of a definition's step is SQL."""
    if not reasons_for_python(pipeline):
        return Way.SQL
    return Way.PYTHON if pipeline.where.merges or _own_combiners(pipeline) else Way.ASSIGNED


def combines_in_sql(pipeline: Pipeline) -> bool:
    """Return True if custom combiners are the only reason for Python, and a query can call their code as functions.

    An engine that has such functions runs everything else of the step in SQL. If records can be taken back, the
    accumulators of custom combiners are lists of values that SQL does not know, and the step runs in Python. So it does
    with a custom trigger, whose rules are guarded against failures only there.
    """
    own = pipeline.own_windows or has_own(pipeline.when)
    return way(pipeline) is Way.PYTHON and not own and not pipeline.takes_back


def sql_alone(pipeline: Pipeline) -> bool:
    """Return True if the common SQL alone can run a definition's steps and assign its records to windows.

    Only in this case can Spark's executors aggregate the records while this process keeps the open windows.
    """
    return all(map(is_common, pipeline.each)) and way(pipeline) is Way.SQL


@singledispatch
def runs_in_sql(definition: Definition) -> bool:
    """Return True if the common SQL alone can fold a definition, without code of the user.

    Kinds whose folds call code of the user register nothing.
    """
    return False


runs_in_sql.register(Pipeline, sql_alone)


@runs_in_sql.register(Map)
@runs_in_sql.register(Join)
def _steps_in_sql(definition: Map | Join) -> bool:
    return all(map(is_common, definition.each))


def may_reject(pipeline: Pipeline) -> bool:
    """Return True if a step, or custom code for windows or combiners, may reject records."""
    return may_fail(pipeline) or way(pipeline) is not Way.SQL


def reasons_for_python(pipeline: Pipeline) -> list[str]:
    """List the reasons why SQL alone cannot run a definition's step.

    Each reason names the part of the definition that needs Python. Triggers are never a reason: all triggers, even
    custom triggers, are written in the algebra. There is SQL for each built-in kind of window, but a subclass of a
    built-in kind counts as custom.
    """
    found = []
    if pipeline.own_windows:
        found.append(f"where: {type(pipeline.where).__name__} is a custom windowing")
    return found + _own_combiners(pipeline)


def _own_combiners(pipeline: Pipeline) -> list[str]:
    found = []
    for name, combiner in pipeline.what.items():
        own, type_ = pipeline.combiners[name], pipeline.type_of(combiner)
        if any(part.merge is Merge.OWN for part in combiner.parts(type_)):
            found.append(f"what[{name!r}]: {type(combiner).__name__} combines in Python")
        elif any(part.merge is Merge.OWN for part in own.parts(type_)):
            reason = "cannot take a record back, and is computed in Python from the values that are there"
            found.append(f"what[{name!r}]: {type(combiner).__name__} {reason}")
    return found
