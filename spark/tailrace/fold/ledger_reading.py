"""Read the ledger of a definition that another process folds, for a reader that is built beside."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.fold.fold import PassedEpoch, passed_again
from tailrace.fold.fold_engines import StreamEngines
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition


@dataclass(frozen=True)
class LookedUp:
    """A ledger of which no lease is taken: its head is wherever the ledger stands."""

    lake: Lake
    table: str

    @property
    def head(self) -> Head:
        return self.lake.head(self.table)


class LedgerReading:
    """A definition whose epochs are read from its ledger alone."""

    def __init__(self, lake: Lake, definition: Definition, engines: StreamEngines) -> None:
        self.lease, self.side = LookedUp(lake, ledger_name(definition.name)), engines.reader(definition)

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch of the ledger as its readers take it (`fold.Recorded`)."""
        return passed_again(self.side, epoch, there, after)

    def close(self) -> None:
        self.side.close()
