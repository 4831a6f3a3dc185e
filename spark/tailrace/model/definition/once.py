"""Productions that count once, though several computations produce them: Photon's registry of ids (Photon, as of 003).

Computations in several regions may read copies of one log, each with its own delays, and each must be able to do all of
the work while another is down. So each computation claims a production in a shared registry before the production
counts, and leaves out a production that another has claimed. A claim is for good, so folding an epoch again gives the
same.
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
    """The identity of a production, wherever it is produced: its id as text, and its event time in microseconds."""

    id: str
    at: int


@dataclass(frozen=True)
class Once:
    """The rule that productions with the same id and event time count once, over all computations with this registry.

    `by` names the column that is the id, of the productions or of the key. `keep` says which productions the rule is
    about; each of the others counts, and so does each with a null id.
    """

    registry: str
    by: str
    keep: Condition | None = None

    def id_of(self, record: Mapping[str, Any], at: int, types: Mapping[str, str]) -> Id | None:
        """Find the id of a production with these columns of these types; None where the rule is not about it.

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
        """Find the faults of the rule over productions with these columns."""
        yield from name_faults(f"{path}.registry", self.registry)
        if self.by not in types:
            yield unknown_column(f"{path}.by", self.by, types)
        elif types[self.by] == "double":
            yield Fault(f"{path}.by", self.by, "a column that compares exactly", "declare it as decimal(p,s)")
        if self.keep is not None:
            yield from condition_faults(f"{path}.keep", self.keep, types)


@dataclass
class Claims:
    """The claims of one computation, `who`, in a registry that others may share, and the ids that it has counted.

    Law: however many claim, in whatever order and however often, each id counts once.

    >>> shared = {}
    >>> here, there = Claims(shared, "eu"), Claims(shared, "us")
    >>> here.claim(Id("a", 1)), there.claim(Id("a", 1)), there.claim(Id("b", 1)), here.claim(Id("a", 1))
    (True, False, True, False)
    """

    registry: MutableMapping[Id, str] = field(default_factory=dict)
    who: str = ""
    counted: set[Id] = field(default_factory=set)

    def claim(self, id: Id) -> bool:
        """Claim an id, and tell whether it counts: it does if it is ours, and this is the first time."""
        ours = self.registry.setdefault(id, self.who) == self.who and id not in self.counted
        if ours:
            self.counted.add(id)
        return ours
