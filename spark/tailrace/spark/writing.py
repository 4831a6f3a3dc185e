"""Rows written to a writer's branch, in a commit that says what it is of (rule X2)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from tailrace.lake.catalog import PREFIX
from tailrace.lake.publish import Branch


def append(rows: DataFrame, branch: Branch, said: Mapping[str, str]) -> None:
    """Append rows to a branch; the snapshot's properties say `said`."""
    writer = rows.writeTo(branch.target)
    for name, value in said.items():
        writer = writer.option(f"snapshot-property.{PREFIX}{name}", value)
    writer.append()
