"""Read and write the properties by which commits of logs and ledgers describe their epochs (rule X2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake, head_of, properties_of
from tailrace.lake.catalog.table_protocol import MAINTAINED, Head, repeated
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.signal_tables import NAMES, names_of
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The properties that are the clock's two times, in microseconds."""

PROGRESS = "progress"
"""The property that says how far the source's partitions are (`Progress`)."""

OFFSET = "offset"
READ = ("query", "batch", OFFSET)
"""The properties of how far the source was read: Spark's query, its micro-batch, and the offset in the source."""

TOPIC = "topic"
"""The property of a log's commit that says which Kafka topic was read: its name and, after a space, its id."""

ENGINE = "engine"
"""The property that says which engine folded an epoch, and why (`engines.choose.Choice`)."""

ONWARD = "onward"
"""The property of a ledger's commit with the watermark that the ledger's readers may have after the epoch (rule T3)."""

_SET_ASIDE = "set_aside"
"""The property that counts the records which a ledger's definition has set aside so far (rule X7)."""

IDLE = "idle"
"""The property of a log's commit that says that all partitions are idle, so that readers of other logs go on."""

DUPLICATES = "duplicates"
"""The property that counts the records dropped because they came again, in all epochs up to this one (rule X5)."""

FOLDER = "folder"
"""The property of a log's commit with the numbers of files in its landing folder that are not read: those that were
changed since they were read, that were moved, and that are hidden, as JSON; missing where there are none."""

NEAR = "near_names"
"""The property of a log's commit with the fields that are dropped, and the columns of nearly the same names that are
missing, as JSON; not there where there are none."""


_GENERATION, _FINGERPRINT = "generation", "fingerprint"
"""The generation in which an epoch's new windows are (V2), and the digest of the definition's meaning."""


@dataclass(frozen=True)
class EpochCommit:
    """The epoch that a commit is of: its clock and, in a ledger, who folded it; `idle` is of a log.

    `set_aside` counts the records that the ledger's definition has set aside up to the epoch.

    A commit beside the stream, by which a lease is taken or a backfill publishes, repeats the last epoch's.
    """

    clock: Clock
    generation: int = 1
    fingerprint: str = ""
    engine: str = ""
    onward: int | None = None
    idle: bool = False
    set_aside: int = 0

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> EpochCommit:
        """Read the epoch off a commit's properties. Properties that are missing are as before the first epoch.

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
            IDLE in properties,
            int(properties.get(_SET_ASIDE, 0)),
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties by which a ledger's commit states the epoch."""
        properties = {
            **clock_properties(self.clock),
            _GENERATION: str(self.generation),
            _FINGERPRINT: self.fingerprint,
            ENGINE: self.engine,
        }
        if self.onward is not None:
            properties[ONWARD] = str(self.onward)
        if self.set_aside:
            properties[_SET_ASIDE] = str(self.set_aside)
        return properties


def clock_properties(clock: Clock) -> dict[str, str]:
    """Return the properties by which a commit states its epoch's clock.

    >>> clock_properties(Clock(7, 5, 9, ("go",)))
    {'epoch': '7', 'watermark': '5', 'processing_time': '9', 'signals': 'go'}
    """
    properties = {
        "epoch": str(clock.epoch),
        **dict(zip(CLOCK, map(str, (clock.watermark, clock.processing_time)), strict=True)),
    }
    return {**properties, NAMES: ",".join(clock.signals)} if clock.signals else properties


def recorded(lake: Lake, table: str) -> dict[int, EpochCommit]:
    """Read each epoch of a log or a ledger off its commits' properties, those of expired snapshots included."""
    found: dict[int, EpochCommit] = {}
    for one in commits(lake, table).all:
        # The first commit with an epoch counts: commits beside the stream repeat the last epoch's properties.
        if CLOCK[1] in one.properties:
            found.setdefault(int(one.properties["epoch"]), EpochCommit.of(one.properties))
    return found


def arrival_times(lake: Lake, table: str) -> dict[int, int]:
    """Read when each epoch of a log was read, its processing time in microseconds, off its commits."""
    return {epoch: commit.clock.processing_time for epoch, commit in recorded(lake, table).items()}


def last_epoch(lake: Lake, logs: Iterable[Log]) -> int:
    """Return the last epoch that all of these logs have, as an epoch is one cut over them; -1 where one has none.

    A log that another stream lands alone for a while runs ahead of the others. Raises `LakeError` where one is not
    there.
    """
    return min(lake.head(log.name).number("epoch") for log in logs)


def carry_forward(lake: Lake, table: str) -> None:
    """Repeat the properties of our last commit in a commit on top, where maintenance has committed above it (X3).

    The properties are then found at the table's head, whatever expires below.
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
            # The table was moved by a writer, whose commit then has the properties, or by another foreign commit.
            continue


def times_of(lake: Lake, log: str) -> dict[int, int]:
    """Return the processing times of a log's epochs, in microseconds, by epoch."""
    return {epoch: one.clock.processing_time for epoch, one in recorded(lake, log).items()}


def progress_of(lake: Lake, log: str) -> Progress | None:
    """Read a log's progress off its last commit; None before its first epoch.

    Raises `LakeError` where there is no such log.
    """
    return progress_in(lake.head(log))


def progress_in(head: Head) -> Progress | None:
    """Read a log's progress off its head; None before its first epoch."""
    return Progress.parsed(head.properties[PROGRESS]) if PROGRESS in head.properties else None
