"""Why a definition's step or answers cannot be SQL alone. Whatever can be is."""

from __future__ import annotations

from tailrace.model.combiners.basic import Merge
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import NATIVE


def reasons(pipeline: Pipeline) -> list[str]:
    """Why a definition does not run natively, each with the part that it is for; none where it does.

    Triggers are not among them: they are written in the algebra, one's own too. Windows are compiled kind by kind, so a
    subclass of a built-in one counts as one's own.
    """
    found = []
    if _own_windows(pipeline):
        found.append(f"where: {type(pipeline.where).__name__} is a windowing of one's own")
    return found + _own_combiners(pipeline)


def only_assigns(pipeline: Pipeline) -> bool:
    """Whether all that Python has to do is to say which windows a record is in: the rest is SQL, given those."""
    return _own_windows(pipeline) and not pipeline.where.merges and not _own_combiners(pipeline)


def _own_windows(pipeline: Pipeline) -> bool:
    return type(pipeline.where) not in NATIVE


def _own_combiners(pipeline: Pipeline) -> list[str]:
    found = []
    for name, combiner in pipeline.what.items():
        own, type_ = pipeline.combiners[name], pipeline.type_of(combiner)
        if any(part.merge is Merge.OWN for part in combiner.parts(type_)):
            found.append(f"what[{name!r}]: {type(combiner).__name__} combines in Python")
        elif any(part.merge is Merge.OWN for part in own.parts(type_)):
            kept = "cannot take a record back, and is computed in Python from the values that are there"
            found.append(f"what[{name!r}]: {type(combiner).__name__} {kept}")
    return found
