"""The two sides of a join and their pairs, in Spark SQL (`tailrace.model.definition.joins`)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.base.time import duration
from tailrace.model.definition.joins import Near, Pack, Pairs, Unpack
from tailrace.sql.terms import Sql, quoted

_LEFT, _RIGHT = "_a", "_b"
"""The parameters of functions for an element of each side: DuckDB takes one that a column has the name of for that."""


def packed(step: Pack, types: Mapping[str, str]) -> str:
    """Write a side's columns as one column, as a select-list item."""
    struct = f"NAMED_STRUCT({', '.join(f'{name!r}, {quoted(column)}' for name, column in step.fields.items())})"
    terms = {name: quoted(name) for name in types}
    term = struct if step.keep is None else f"IF({step.keep.holds(Sql(), terms, types)}, {struct}, NULL)"
    return f"{term} AS {quoted(step.name)}"


def paired(step: Pairs, types: Mapping[str, str]) -> str:
    """Write the list of the pairs of a row's two lists."""
    left, right = step.sides(types)
    lists = {_LEFT: quoted(step.left), _RIGHT: quoted(step.right)}
    near = step.near
    meet = None if near is None else _near(near)

    def pair(*there: str) -> str:
        sides = (
            (name, type, side) for side, fields in ((_LEFT, left), (_RIGHT, right)) for name, type in fields.items()
        )
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
        other = _RIGHT if side == _LEFT else _LEFT
        return f"IF(SIZE({partners(other)}) = 0, ARRAY({pair(side)}), SLICE(ARRAY({pair(side)}), 1, 0))"

    met = f"TRANSFORM({partners(_RIGHT)}, {_RIGHT} -> {pair(_LEFT, _RIGHT)})"
    each = f"CONCAT({met}, {lonely(_LEFT)})" if step.keeps_left else met
    pairs = f"FLATTEN(TRANSFORM({own(_LEFT)}, {_LEFT} -> {each}))"
    if not step.keeps_right:
        return pairs
    return f"CONCAT({pairs}, FLATTEN(TRANSFORM({own(_RIGHT)}, {_RIGHT} -> {lonely(_RIGHT)})))"


def unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Write the list of those elements of a row's list that are taken."""
    held = quoted(step.name) if step.first is None else f"SLICE({quoted(step.name)}, 1, {step.first})"
    if step.place is None:
        return held
    terms = [f"'{name}', _a.{quoted(name)}" for name in step.fields(types)]
    # The function's index `_i` counts from 0, the place from 1.
    terms.append(f"'{step.place}', CAST(_i + 1 AS bigint)")
    return f"TRANSFORM({held}, (_a, _i) -> NAMED_STRUCT({', '.join(terms)}))"


def _near(near: Near) -> str:
    apart = f"UNIX_MICROS({_RIGHT}.{quoted(near.right)}) - UNIX_MICROS({_LEFT}.{quoted(near.left)})"
    return f"({apart} BETWEEN -{duration(near.before)}L AND {duration(near.after)}L)"


def _owns(near: Near, side: str) -> str:
    at, wait = (near.left, near.before) if side == _LEFT else (near.right, near.after)
    place = f"UNIX_MICROS({side}.{quoted(at)}) - {duration(wait)}L - UNIX_MICROS(window_start)"
    return f"({place} BETWEEN 0L AND {duration(near.before + near.after) - 1}L)"
