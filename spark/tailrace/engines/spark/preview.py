"""Show a few rows of a Spark frame to people."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame

from tailrace.model.base.time import moment
from tailrace.sql.terms import quoted


def readable_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Collect the rows as dictionaries: instants of any year as UTC datetimes, structs and arrays as parsed JSON.

    Numbers with a fraction in structs and arrays are decimals. The whole frame is collected, so limit it first.
    """
    kinds = dict(frame.dtypes)
    instants = {name for name, type in kinds.items() if type == "timestamp"}
    nested = {name for name, type in kinds.items() if type.startswith(("struct", "array"))}
    items = []
    for name in map(quoted, frame.columns):
        own = name.strip("`")
        term = f"UNIX_MICROS({name})" if own in instants else f"TO_JSON({name})" if own in nested else name
        items.append(f"{term} AS {name}")

    def value(name: str, raw: Any) -> Any:
        if raw is None:
            return None
        if name in nested:
            return json.loads(raw, parse_float=Decimal)
        return moment(raw) if name in instants else raw

    rows = [row.asDict() for row in frame.selectExpr(*items).collect()]
    return [{name: value(name, one) for name, one in row.items()} for row in rows]
