"""Collect the ledger rows of replayed epochs in a temporary table on Spark, with one commit for several epochs."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from tailrace.engines.spark.executions.execution import SparkResult
from tailrace.engines.spark.executions.open_windows import OpenWindows
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.terms import Relation

BATCH = 8
"""The number of epochs per commit."""


class SparkGathering:
    """A table of the lake that collects ledger rows.

    If the process that writes the table crashes, maintenance removes the table.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline) -> None:
        contract = ledger_contract(pipeline)
        self.lake, self.table = lake, f"{pipeline.name}__replay_{uuid.uuid4().hex[:8]}"
        lake.ensure(replace(contract, table=self.table, doc=f"epochs of {contract.table} folded again"))
        self.relation = Relation(lake.spark_name(self.table))
        self._waiting: list[tuple[DataFrame, OpenWindows]] = []

    def take(self, stepped: SparkResult, before: OpenWindows) -> None:
        self._waiting.append((stepped.rows, before))
        if len(self._waiting) == BATCH:
            self.settle()

    def settle(self) -> None:
        if not self._waiting:
            return
        # Until now, only the bundles of the waiting epochs have been computed. This write also computes the epochs'
        # steps.
        reduce(DataFrame.unionAll, (rows for rows, _ in self._waiting)).writeTo(self.relation).append()
        for _, before in self._waiting:
            before.forget()
        self._waiting = []

    def close(self) -> None:
        """Remove the table of collected ledger rows."""
        self.lake.drop(self.table)
