"""The two sides of a join and their pairs, in Spark SQL (`tailrace.model.definition.joins`)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.base.time import duration
from tailrace.model.definition.joins import Near, Pack, Pairs, Unpack
from tailrace.sql.terms import Sql, quoted


def packed(step: Pack, types: Mapping[str, str]) -> str:
    """Write a side's columns as one column, as a select-list item."""
    struct = f"NAMED_STRUCT({', '.join(f'{name!r}, {quoted(column)}' for name, column in step.fields.items())})"
    terms = {name: quoted(name) for name in types}
    term = struct if step.keep is None else f"IF({step.keep.holds(Sql(), terms, types)}, {struct}, NULL)"
    return f"{term} AS {quoted(step.name)}"


def paired(step: Pairs, types: Mapping[str, str]) -> str:
    """Write the list of the pairs of a row's two lists."""
    left, right = step.sides(types)
    lists = {"a": quoted(step.left), "b": quoted(step.right)}
    near = step.near
    meet = None if near is None else _near(near)

    def pair(*there: str) -> str:
        sides = ((name, type, side) for side, fields in (("a", left), ("b", right)) for name, type in fields.items())
        terms = (
            f"'{name}', {f'{side}.{quoted(name)}' if side in there else f'CAST(NULL AS {type})'}"
            for name, type, side in sides
        )
        return f"NAMED_STRUCT({', '.join(terms)})"

    def own(side: str) -> str:
        return lists[side] if near is None else f"FILTER({lists[side]}, {side} -> {_owns(near, side)})"

    def partners(side: str) -> str:
        return lists[side] if meet is None else f"FILTER({lists[side]}, {side} -> {meet})"

    def lonely(side: str) -> str:
        other = "b" if side == "a" else "a"
        return f"IF(SIZE({partners(other)}) = 0, ARRAY({pair(side)}), SLICE(ARRAY({pair(side)}), 1, 0))"

    met = f"TRANSFORM({partners('b')}, b -> {pair('a', 'b')})"
    each = f"CONCAT({met}, {lonely('a')})" if step.keeps_left else met
    pairs = f"FLATTEN(TRANSFORM({own('a')}, a -> {each}))"
    if not step.keeps_right:
        return pairs
    return f"CONCAT({pairs}, FLATTEN(TRANSFORM({own('b')}, b -> {lonely('b')})))"


def unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Write the list of those elements of a row's list that are taken."""
    held = quoted(step.name) if step.first is None else f"SLICE({quoted(step.name)}, 1, {step.first})"
    if step.place is None:
        return held
    terms = [f"'{name}', a.{quoted(name)}" for name in step.fields(types)]
    # The function's index `i` counts from 0, the place from 1.
    terms.append(f"'{step.place}', CAST(i + 1 AS bigint)")
    return f"TRANSFORM({held}, (a, i) -> NAMED_STRUCT({', '.join(terms)}))"


def _near(near: Near) -> str:
    apart = f"UNIX_MICROS(b.{quoted(near.right)}) - UNIX_MICROS(a.{quoted(near.left)})"
    return f"({apart} BETWEEN -{duration(near.before)}L AND {duration(near.after)}L)"


def _owns(near: Near, side: str) -> str:
    at, wait = (near.left, near.before) if side == "a" else (near.right, near.after)
    place = f"UNIX_MICROS({side}.{quoted(at)}) - {duration(wait)}L - UNIX_MICROS(window_start)"
    return f"({place} BETWEEN 0L AND {duration(near.before + near.after) - 1}L)"
