"""Filters that pyiceberg pushes down to partitions take any instant that a window may begin or end at."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions.visitors import inclusive_projection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform, Transform, YearTransform
from pyiceberg.types import NestedField, TimestamptzType

from tailrace.lake.schema import filters
from tailrace.model.base.time import BEGINNING, END_OF_TIME


@pytest.mark.parametrize("transform", [MonthTransform(), YearTransform()])
def test_X7_a_filter_takes_the_ends_of_time(transform: Transform[Any, Any]) -> None:
    schema = Schema(NestedField(1, "at", TimestamptzType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    for make in (filters.after, filters.up_to, filters.since, filters.before):
        for at in (BEGINNING, END_OF_TIME):
            inclusive_projection(schema, spec)(make("at", at))
