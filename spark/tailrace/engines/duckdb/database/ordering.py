"""Compare and sort nested values in DuckDB as Spark does: a null is the lowest value, also inside lists and structs.

DuckDB can put a list's null elements first, but nulls inside its elements are last. Nested values are therefore
compared by their sort keys. The sort key of a value is a struct: for each place in the value, it has a boolean (true if
there is a value, not a null) and the value. Values that are not nested are compared directly. Lists that are sorted
never contain null elements (`Algebra.alone`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp, parse_one

_NESTED = (exp.DataType.Type.ARRAY, exp.DataType.Type.STRUCT)


def sort_list(values: exp.Expr, *, down: bool) -> exp.Expr:
    """Return the expression that sorts a list.

    A list of nested values must be cast to its type, because the type contains the names of the fields.

    >>> print(sort_list(parse_one("CAST(a AS ARRAY<STRUCT<x BIGINT>>)", read="spark"), down=False).sql("duckdb"))
    LIST_TRANSFORM(SORTED_UP(LIST_TRANSFORM(CAST(a AS STRUCT(x BIGINT)[]), LAMBDA _e : {'there_0': \
NOT _e."x" IS NULL, 'at_0': _e."x", 'value': _e})), LAMBDA _k : _k.value)
    """
    macro = "sorted_down" if down else "sorted_up"
    type = _nested_type(values)
    if type is None or not type.expressions[0].is_type(*_NESTED):
        return exp.Anonymous(this=macro, expressions=[values])
    given = exp.Cast(this=values.args["this"], to=type)
    key = ", ".join([*_key("_e", type.expressions[0], ""), "'value', _e"])
    return _filled(f"TRANSFORM({macro}(TRANSFORM(_given, _e -> NAMED_STRUCT({key}))), _k -> _k.value)", _given=given)


def extreme(aggregate: str) -> Callable[[exp.Expression], exp.Expression]:
    """Return the rule for `MIN` or `MAX`; `aggregate` is DuckDB's function of a value and its key, `arg_min` or
    `arg_max`.
    """

    def written(node: exp.Expression) -> exp.Expression:
        if (type := _nested_type(node.this)) is None:
            return node
        return exp.Anonymous(this=aggregate, expressions=[node.this, _key_of(node.this.this, type)])

    return written


def outer(sign: str) -> Callable[[exp.Expression], exp.Expr]:
    """Return the rule for `LEAST` or `GREATEST` of two values; with `<` as sign, the second value is taken if its key
    is less than the first value's.
    """

    def written(node: exp.Expression) -> exp.Expr:
        a, *others = (node.this, *node.expressions)
        if (type := _nested_type(a)) is None:
            return node
        (b,) = others
        text = f"CASE WHEN _a IS NULL THEN _b WHEN _b IS NULL OR NOT (_q {sign} _p) THEN _a ELSE _b END"
        keys = {"_p": _key_of(a.this, type), "_q": _key_of(b.this, type)}
        return _filled(text, _a=a.this, _b=b.this, **keys)

    return written


def _nested_type(value: exp.Expr) -> exp.DataType | None:
    """Return the type to which a nested value is cast, or None if it is not cast to a nested type."""
    to = value.args.get("to") if isinstance(value, exp.Cast) else None
    return to if to is not None and to.is_type(*_NESTED) else None


def _key_of(value: exp.Expr, type: exp.DataType) -> exp.Expr:
    return _filled(f"NAMED_STRUCT({', '.join(_key('_given', type, ''))})", _given=value)


def _key(of: str, type: exp.DataType, place: str) -> Iterator[str]:
    """Yield the fields of the sort key of a value, in Spark's dialect.

    `place` is the number of the value's field, after the numbers of the fields that contain it. It makes the names in a
    key unique.
    """
    if type.is_type(exp.DataType.Type.STRUCT):
        for number, field in enumerate(type.expressions):
            own, inside = f"{of}.`{field.name}`", f"{place}_{number}"
            yield f"'there{inside}', {own} IS NOT NULL"
            yield from _key(own, field.args["kind"], inside)
    elif type.is_type(exp.DataType.Type.ARRAY):
        element = f"_e{place}_"
        there = f"'there{place}_', {element} IS NOT NULL"
        fields = ", ".join([there, *_key(element, type.expressions[0], f"{place}_")])
        yield f"'at{place}', TRANSFORM({of}, {element} -> NAMED_STRUCT({fields}))"
    else:
        yield f"'at{place}', {of}"


def _filled(text: str, **given: exp.Expr) -> exp.Expr:
    """Parse a text in Spark's dialect, and put expressions in the place of the given names."""
    tree = parse_one(text, read="spark")
    for column in list(tree.find_all(exp.Column)):
        name, *fields = column.parts
        if name.name in given:
            value = given[name.name].copy()
            column.replace(exp.Dot.build([exp.paren(value, copy=False), *fields]) if fields else value)
    return tree
