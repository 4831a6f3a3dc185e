"""Sort lists in DuckDB as Spark does: a null is the lowest value, even inside structs, where DuckDB puts nulls last.

DuckDB can put a list's null elements first, but not the nulls in the fields of structs. A list of structs is therefore
sorted by keys. For each field of a struct, the key contains a boolean (true if the field is not null) and the field's
value. The structs are then rebuilt from the keys. Any other list is sorted directly. Lists that are sorted never
contain null elements (`Algebra.alone`).
"""

from __future__ import annotations

from sqlglot import exp, parse_one

_LIST = "_tailrace_sorted"


def sort_list(values: exp.Expr, *, down: bool) -> exp.Expr:
    """Return the expression that sorts a list.

    A list of structs must be cast to its type, because the type contains the names of the fields.

    >>> print(sort_list(parse_one("CAST(a AS ARRAY<STRUCT<x BIGINT>>)", read="spark"), down=False).sql("duckdb"))
    LIST_TRANSFORM(SORTED_UP(LIST_TRANSFORM(CAST(a AS STRUCT(x BIGINT)[]), LAMBDA _e : {'there_0': \
NOT _e."x" IS NULL, 'field_0': _e."x"})), LAMBDA _k : {'x': _k.field_0})
    """
    macro = "sorted_down" if down else "sorted_up"
    if (element := _struct(values)) is None:
        return exp.Anonymous(this=macro, expressions=[values])
    keys, whole = _taken_apart(element, "_e", "")
    text = f"TRANSFORM({macro}(TRANSFORM({_LIST}, _e -> NAMED_STRUCT({', '.join(keys)}))), _k -> {whole})"
    tree = parse_one(text, read="spark")
    held = next(one for one in tree.find_all(exp.Column) if one.name == _LIST)
    held.replace(exp.Cast(this=values.this, to=values.args["to"]))
    return tree


def _struct(values: exp.Expr) -> exp.DataType | None:
    """Return the struct type of a list's elements, or None if the list is not cast to a list of structs."""
    to = values.args.get("to") if isinstance(values, exp.Cast) else None
    inner = to.expressions[0] if to is not None and to.is_type(exp.DataType.Type.ARRAY) else None
    return inner if inner is not None and inner.is_type(exp.DataType.Type.STRUCT) else None


def _taken_apart(struct: exp.DataType, of: str, path: str) -> tuple[list[str], str]:
    """Return the SQL fields of a struct's sort key, and the SQL expression that rebuilds the struct from the key `_k`.

    The fields and the expression are in Spark's dialect.
    """
    keys, fields = list[str](), list[str]()
    for number, field in enumerate(struct.expressions):
        own, place = f"{of}.`{field.name}`", f"{path}_{number}"
        keys.append(f"'there{place}', {own} IS NOT NULL")
        if field.args["kind"].is_type(exp.DataType.Type.STRUCT):
            inner, again = _taken_apart(field.args["kind"], own, place)
            keys += inner
            fields.append(f"'{field.name}', IF(_k.there{place}, {again}, NULL)")
        else:
            keys.append(f"'field{place}', {own}")
            fields.append(f"'{field.name}', _k.field{place}")
    return keys, f"NAMED_STRUCT({', '.join(fields)})"
