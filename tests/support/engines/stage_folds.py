"""Folds a definition of several stages in this process, epoch by epoch, on a lake of its own and without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tailrace import Pipeline
from tailrace.engines.batch.held_answers import held_answers
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange, repeated_properties
from tailrace.lake.commit.commit_history import commit_history
from tailrace.lake.commit.epoch_properties import clock_properties
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.model.base.clock import Clock
from tailrace.model.windows.panes import Answers
from tailrace.model.windows.windows import Window
from tailrace.operate.answers_repair import accept
from tailrace.settings import Settings
from tailrace.sql.results.answers import current_answers
from tailrace.verify.audit import audit
from tests.support.engines.computation_folds import no_spark
from tests.support.engines.sessions import in_process
from tests.support.engines.spark_runs import arrow_bundle


class StageFolds:
    """The running folds of a definition's stages, and the log that they read."""

    def __init__(self, folder: Path, pipeline: Pipeline) -> None:
        self.lake, self.pipeline, (self.log,) = Lake(Settings(warehouse=folder)), pipeline, pipeline.sources
        self.lake.ensure(log_contract(self.log), {"epoch": "-1"})
        self.lake.ensure(rejected_contract(self.log))
        self._places = 0
        self.start()

    def start(self, pipeline: Pipeline | None = None) -> None:
        """Have another process take over, maybe with another definition."""
        self.pipeline = pipeline or self.pipeline
        self.group = FoldGroup(no_spark, self.lake, [self.pipeline], follow_every=1)

    def land(self, records: Sequence[Mapping[str, Any]], epoch: int, clock: Clock | None = None) -> None:
        """Append records to the log; without a clock they are of an epoch that is there, which no fold reads again."""
        bundle = arrow_bundle(self.log, records, epoch)
        places = [self._places + place for place in range(bundle.num_rows)]
        self._places += bundle.num_rows
        columns: dict[str, list[Any]] = {"_source": [self.log.name] * bundle.num_rows, "_offset": places}
        rows = [row | {name: own[at] for name, own in columns.items()} for at, row in enumerate(bundle.to_pylist())]
        files = FileChange(
            tuple(self.lake.write_files(self.log.name, type(bundle).from_pylist(rows, schema=bundle.schema)))
        )
        head = self.lake.head(self.log.name)
        own = repeated_properties(head.properties) if clock is None else clock_properties(clock)
        self.lake.change(self.log.name, files, own, head.snapshot)

    def lose(self, pipeline: Pipeline, who: str) -> None:
        """A fault of an older version: what the state held of a key is gone, and another process takes over."""
        self.group.close()
        gone = f"kind = 'partial' AND {pipeline.key[0]} = '{who}'"
        ledger = f"{pipeline.name}__ledger"
        self.lake.table(ledger).delete(gone)
        deleted = [one.snapshot for one in commit_history(self.lake, ledger).foreign]
        accept(self.lake, [ledger], deleted, "what an older version lost")
        self.start()

    def fold(self, last: int) -> None:
        """Fold the log's epochs up to one."""
        list(self.group.missed_epochs(last))

    def answers(self, stage: Pipeline) -> Answers:
        with closing(in_process(self.lake)) as session:
            rows = session.rows(current_answers(stage, held_answers(session, stage)))
        return {
            (tuple(row[name] for name in stage.key), Window(row["window_start"], row["window_end"])): {
                name: row[name] for name in stage.what
            }
            for row in rows
        }

    def clean(self) -> None:
        for stage in self.pipeline.stages:
            found = audit(self.lake, stage)
            assert found.ok, (stage.name, [check for check in found.checks if not check.ok])
