"""Read and write what commits of logs and ledgers say of their epochs, by their snapshots' properties (rule X2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake, head_of, properties_of
from tailrace.lake.catalog.table_protocol import MAINTAINED, Head, repeated
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.signal_tables import NAMES, names_of
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.step.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The clock's two times, in microseconds."""

PROGRESS = "progress"
"""How far the source's partitions are."""

READ = ("query", "batch", "offset")
"""How far the source was read: by which query of Spark's, in which micro-batch, up to which offset of the source."""

ENGINE = "engine"
"""What folded an epoch, and why (`engines.choose.Choice`)."""

ONWARD = "onward"
"""What a ledger's commit says of the watermark that those who read it may have after the epoch (rule T3)."""

DUPLICATES = "duplicates"
"""How many records were dropped because they came again, in all epochs up to this one (rule X5)."""


_GENERATION, _FINGERPRINT = "generation", "fingerprint"
"""The generation in which an epoch's new windows are (V2), and the digest of the definition's meaning."""


@dataclass(frozen=True)
class EpochCommit:
    """Say in a commit which epoch it is of: by the clock and, in a ledger, by who folded it.

    A commit beside the stream, of a lease that is taken or a backfill, repeats what the last epoch's says.
    """

    clock: Clock
    generation: int = 1
    fingerprint: str = ""
    engine: str = ""
    onward: int | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> EpochCommit:
        """Read it off a commit's properties. What they do not say is as before the first epoch.

        >>> EpochCommit.of({"epoch": "7", "watermark": "5", "processing_time": "9", "generation": "2"}).clock
        Clock(epoch=7, watermark=5, processing_time=9, signals=())
        """
        watermark, now = (int(properties.get(name, BEGINNING)) for name in CLOCK)
        onward = properties.get(ONWARD)
        return cls(
            Clock(int(properties.get("epoch", -1)), watermark, now, names_of(properties)),
            int(properties.get(_GENERATION, 1)),
            properties.get(_FINGERPRINT, ""),
            properties.get(ENGINE, ""),
            None if onward is None else int(onward),
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties that a ledger's commit says it by."""
        said = {
            **clock_properties(self.clock),
            _GENERATION: str(self.generation),
            _FINGERPRINT: self.fingerprint,
            ENGINE: self.engine,
        }
        return said if self.onward is None else {**said, ONWARD: str(self.onward)}


def clock_properties(clock: Clock) -> dict[str, str]:
    """The properties by which a commit says its epoch's clock.

    >>> clock_properties(Clock(7, 5, 9, ("go",)))
    {'epoch': '7', 'watermark': '5', 'processing_time': '9', 'signals': 'go'}
    """
    said = {
        "epoch": str(clock.epoch),
        **dict(zip(CLOCK, map(str, (clock.watermark, clock.processing_time)), strict=True)),
    }
    return {**said, NAMES: ",".join(clock.signals)} if clock.signals else said


def recorded(lake: Lake, table: str) -> dict[int, EpochCommit]:
    """Read what the commits of a log or a ledger say of each epoch, those of expired snapshots included."""
    found: dict[int, EpochCommit] = {}
    for one in commits(lake, table).all:
        # A commit beside the stream repeats what the last epoch's says.
        if CLOCK[1] in one.properties:
            found.setdefault(int(one.properties["epoch"]), EpochCommit.of(one.properties))
    return found


def carry_forward(lake: Lake, table: str) -> None:
    """Say again what the last commit of ours says, in a commit on top, where maintenance has committed above it (X3).

    It is then found at the table's head, whatever expires below.
    """
    while True:
        loaded = lake.table(table)
        current, head = loaded.current_snapshot(), head_of(loaded)
        if current is None or not head.properties or properties_of(current):
            return
        try:
            lake.mark(table, {**repeated(head.properties), MAINTAINED: "true"}, head.snapshot)
            return
        except MovedError:
            # By a writer, who then has said it, or by another foreign commit.
            continue


def times_of(lake: Lake, log: str) -> dict[int, int]:
    """The processing times of a log's epochs, in microseconds."""
    return {epoch: one.clock.processing_time for epoch, one in recorded(lake, log).items()}


def progress_of(lake: Lake, log: str) -> Progress | None:
    """How far a log has come, by its last commit; None before its first epoch.

    Raises `LakeError` where there is no such log.
    """
    return progress_in(lake.head(log))


def progress_in(head: Head) -> Progress | None:
    """Read how far a log has come off its last commit."""
    return Progress.parsed(head.properties[PROGRESS]) if PROGRESS in head.properties else None
