"""How deep the tests try: little of each claim at each change, and more of it in `make test-deep`.

A law holds for all definitions, and a test tries some. How many is chosen by what one costs: those of the model and of
the engine in the process are many at each change; those that real Spark plans and runs are few, and are chosen so that
each kind of window, trigger, step and answer is among them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tailrace.sql.epoch.ledger_rows import state_types
from tests.transcripts import Staged, Transcript

DEPTH = int(os.environ.get("TAILRACE_TEST_DEPTH", "1"))
"""0 while one works, 1 at each change; beyond that `deep` tests run, too, and laws have so many times the examples."""

_NAMES = re.compile(r"[A-Z][A-Za-z]+(?=\()|always|if_non_empty|close|refuse|accumulating|discarding|retracting")
_UNITS = re.compile(r"Calendar\('\w+'|phase='\w+'")

deep = pytest.mark.deep
"""Marks a test that runs only where it is asked for more than what each change needs."""


def cases(count: int, deeper: int | None = None) -> int:
    """How many examples to try: `count` at each change, a quarter while one works, `deeper` times the depth beyond."""
    if DEPTH < 2:
        return count if DEPTH else max(1, count // 4)
    return (count if deeper is None else deeper) * DEPTH


def covering(all_of_them: Sequence[Transcript] | Sequence[Staged], *, states: bool = False) -> list[Any]:
    """Parametrise by transcripts, with those marked `deep` that have no kind of part of their own.

    What is left has each windowing, trigger, combiner, step, condition, mode and option that any of them has, and each
    kind of line that comes out. With `states` it has what makes a window's state another one: windowings, combiners and
    types of columns, for an execution whose rules are the reference's own.
    """
    kinds = {one.name: _kinds(one) for one in all_of_them}
    if states:
        parts = tuple(f"False {part} " for part in ("where", "what", "merges"))
        kinds = {
            one.name: {kind for kind in kinds[one.name] if kind.startswith(parts)}
            | set(state_types(one.pipeline).values())
            for one in all_of_them
        }
    # An epoch is what costs, and beginning is about as much as one.
    costs = {one.name: 1 + len(one.epochs) for one in all_of_them}
    chosen: set[str] = set()
    missing = set().union(*kinds.values())
    while missing:
        best = max(kinds, key=lambda name: (len(kinds[name] & missing) / costs[name], name))
        chosen.add(best)
        missing -= kinds[best]
    return [pytest.param(one, id=one.name, marks=() if one.name in chosen else deep) for one in all_of_them]


def _kinds(one: Transcript | Staged) -> set[str]:
    stages = one.pipeline.stages
    found = set[str]()
    for place, stage in enumerate(stages):
        for part, said in stage.meaning.items():
            if part not in ("columns", "reads", "of", "event_time"):
                found |= {f"{place > 0} {part} {word}" for word in _words(said)}
        found.add(f"{place > 0} merges {stage.where.merges} {stage.how.value}")
    found |= {f"rule {rule}" for rule in re.findall(r"^[A-Z]\d", one.name)}
    expected = one.expected if isinstance(one, Transcript) else "\n".join(one.expected)
    return (
        found
        | {f"comes out as {sign}" for sign in re.findall(r"^  (\S) ", expected, re.MULTILINE)}
        | {f"fires {timing}" for timing in ("early", "on_time", "late") if f" {timing} " in expected}
    )


def _words(said: Any) -> Iterable[str]:
    """The names of the parts in what a definition says, without the values that it gives them."""
    return _NAMES.findall(str(said)) + _UNITS.findall(str(said))
