"""The rule that a production counts only once even if several computations output it (Photon's registry of ids).

Computations in several regions may read copies of the same log, each copy with its own delays. Each of the computations
must be able to produce all results alone, because the other computations may be down. So a computation outputs a
production only after claiming it in a shared registry, and drops a production that another computation has already
claimed. A claim is permanent, so an epoch that is processed again has the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition, condition_faults
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.names import name_faults


class Id(NamedTuple):
    """The identity of a production in all computations: its id as text, and its event time in microseconds."""

    id: str
    at: int


@dataclass(frozen=True)
class Once:
    """The rule that productions with the same id and event time count only once across all computations that share a
    registry.

    `by` names the column that contains the id: a column of the productions or of the key. `keep` limits the rule to the
    productions that meet a condition. Productions that do not meet the condition always count, and so do productions
    with a null id.
    """

    registry: str
    by: str
    keep: Condition | None = None

    def id_of(self, record: Mapping[str, Any], at: int, types: Mapping[str, str]) -> Id | None:
        """Return the id of the production `record`, or None if the rule does not apply to the production.

        >>> from tailrace.model.base.conditions import Match
        >>> joined = Once("joined", by="click", keep=Match("query", ">", 0))
        >>> types = {"click": "bigint", "query": "bigint"}
        >>> [joined.id_of({"click": 7, "query": query}, 5, types) for query in (3, None)]
        [Id(id='7', at=5), None]
        """
        if record.get(self.by) is None:
            return None
        if self.keep is not None and not self.keep.holds(Scalars(), {n: record.get(n) for n in types}, types):
            return None
        return Id(str(record[self.by]), at)

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the rule, given the names and types of the productions' columns."""
        yield from name_faults(f"{path}.registry", self.registry)
        if self.by not in types:
            yield unknown_column(f"{path}.by", self.by, types)
        elif types[self.by] == "double":
            yield Fault(f"{path}.by", self.by, "a column that compares exactly", "declare it as decimal(p,s)")
        if self.keep is not None:
            yield from condition_faults(f"{path}.keep", self.keep, types)


@dataclass
class Claims:
    """The claims that one computation (`who`) makes in a registry, which several computations may share.

    `counted` contains the ids that this computation has already counted.

    Law: each id counts once, even if several computations claim the id several times and in any order.

    >>> shared = {}
    >>> here, there = Claims(shared, "eu"), Claims(shared, "us")
    >>> here.claim(Id("a", 1)), there.claim(Id("a", 1)), there.claim(Id("b", 1)), here.claim(Id("a", 1))
    (True, False, True, False)
    """

    registry: MutableMapping[Id, str] = field(default_factory=dict)
    who: str = ""
    counted: set[Id] = field(default_factory=set)

    def claim(self, id: Id) -> bool:
        """Claim an id. Return True if this computation owns the id and has not counted the id before."""
        ours = self.registry.setdefault(id, self.who) == self.who and id not in self.counted
        if ours:
            self.counted.add(id)
        return ours
