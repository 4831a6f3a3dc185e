"""Who is linked with whom, told by records that go round, and told by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace import Computation, Context, Field, Log

LINKS = Log(name="links", columns={"one": "string", "other": "string", "at": "timestamp"}, event_time="at")


@dataclass(frozen=True, kw_only=True)
class Groups(Computation):
    """Each name's group is the least of all the names that it is linked with, over however many others."""

    state = {"group": "string", "linked": Field("array<string>", [])}
    produces = {"group": "string"}
    feedback = {"out_of": "string", "group": "string"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        self._link(context, record["other"], record["one"])

    def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None:
        self._link(context, record["out_of"], min(record["group"], record["one"]))

    def _link(self, context: Context, other: str, group: str) -> None:
        state, me = context.state, context.key[0]
        better, new = state.group is None or group < state.group, other not in state.linked
        if better:
            state.group = group
            context.produce({"group": group})
        if new:
            state.linked.append(other)
        for one in state.linked if better else [other] if new else []:
            context.feed_back(one, {"out_of": me, "group": state.group})


def by_hand(links: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Find the groups by joining sets, one link after the other.

    >>> by_hand([("a", "b"), ("c", "b"), ("d", "d")])
    {'a': 'a', 'b': 'a', 'c': 'a', 'd': 'd'}
    """
    sets: list[set[str]] = []
    for link in links:
        joined = set(link).union(*(one for one in sets if one & set(link)))
        sets = [one for one in sets if not one & joined] + [joined]
    return {name: min(one) for one in sorted(sets, key=min) for name in sorted(one)}
