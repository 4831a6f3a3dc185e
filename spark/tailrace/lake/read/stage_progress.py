"""Read the progress of a definition from the last commits of its tables, without a scan and without an engine."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.commit.epoch_properties import ENGINE
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import ahead, behind
from tailrace.model.base.time import BEGINNING


@dataclass(frozen=True, kw_only=True)
class StageProgress:
    """The last epoch of a definition's ledger, and the ledger's clock. Times are in microseconds.

    `epoch` is -1 before the first epoch. `answers_epoch` is the epoch up to which the answers are current, or -1
    without a table of answers. `onward` is the watermark that the definition passes on to its readers. `generation` is
    the stream's generation, and `token` is the token of the stream's lease. `engine` names the engine of the last epoch
    and the reason why this engine was chosen. `committed` is the time of the ledger's last commit.
    """

    name: str
    epoch: int = -1
    answers_epoch: int = -1
    watermark: int = BEGINNING
    onward: int = BEGINNING
    processing_time: int | None = None
    generation: int = 0
    token: int = 0
    engine: str | None = None
    committed: int | None = None

    @classmethod
    def of(cls, name: str, ledger: Table, answers: Table | None) -> StageProgress:
        """Read a definition's progress from its ledger and, if the definition has one, from its table of answers."""
        head = head_of(ledger)
        processing_time = head.properties.get("processing_time")
        return StageProgress(
            name=name,
            epoch=head.number("epoch"),
            answers_epoch=-1 if answers is None else head_of(answers).number("epoch"),
            watermark=head.number("watermark", BEGINNING),
            onward=head.number("onward", BEGINNING),
            processing_time=None if processing_time is None else int(processing_time),
            generation=head.number("generation", 0),
            token=head.number("token", 0),
            engine=head.properties.get(ENGINE),
            committed=committed_at(ledger),
        )

    @property
    def lag(self) -> int | None:
        """The time, in microseconds, by which the watermark is behind the last epoch's processing time.

        The lag is None if the watermark or the processing time is at the beginning or the end of time.
        """
        return behind(self.watermark, self.processing_time)

    @property
    def ahead(self) -> int:
        """The time, in microseconds, by which the watermark is ahead of the last epoch's processing time.

        If the watermark is at most one day ahead, the value is 0.
        """
        return ahead(self.watermark, self.processing_time)

    @property
    def engine_named(self) -> tuple[str, str]:
        """The name of the last epoch's engine, and the reason for its choice; both are empty before the first epoch."""
        name, _, why = (self.engine or "").partition(": ")
        return name, why


def stage_progress(lake: Lake, name: str) -> StageProgress | None:
    """Read the progress of a definition, given its name; return None if no stream has started the definition."""
    ledger = lake.find(ledger_name(name))
    return None if ledger is None else StageProgress.of(name, ledger, lake.find(name))


def committed_at(table: Table) -> int | None:
    """Return the time of a table's last commit, in microseconds, or None before the first commit."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.timestamp_ms * 1000
