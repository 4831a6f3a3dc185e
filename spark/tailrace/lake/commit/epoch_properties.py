"""Read and write the properties with which commits of logs and ledgers describe their epochs (rule X2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tailrace.lake.catalog.lake import Lake, head_of, properties_of
from tailrace.lake.catalog.table_protocol import MAINTAINED, Head, repeated_properties
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.signal_tables import NAMES, names_of
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The names of the properties with the clock's two times, in microseconds."""

PROGRESS = "progress"
"""The name of the property with the progress of the source's partitions (`Progress`)."""

OFFSET = "offset"
READ = ("query", "batch", OFFSET)
"""The names of the properties with the read position: Spark's query, its micro-batch, and the offset in the source."""

TOPIC = "topic"
"""The property of a log's commit with the name of the Kafka topic that was read and, after a space, the topic's id."""

ENGINE = "engine"
"""The property with the engine that folded an epoch, and the reason for this engine (`engines.choose.Choice`)."""

ONWARD = "onward"
"""The property of a ledger's commit with the watermark that the ledger's readers have after the epoch (rule T3)."""

_SET_ASIDE = "set_aside"
"""The property with the number of records that a ledger's definition has set aside so far (rule X7)."""

IDLE = "idle"
"""The property that a log's commit has if all partitions are idle, so that readers of several logs can continue."""

DUPLICATES = "duplicates"
"""The property with the total number of dropped duplicates in all epochs up to this epoch (rule X5)."""

FOLDER = "folder"
"""The property of a log's commit with the numbers of its landing folder's changed, moved and hidden files, as JSON.

The property is missing if there are no such files.
"""

NEAR = "near_names"
"""The property of a log's commit that maps dropped fields to missing columns of nearly the same name, as JSON.

The property is missing if there are no such fields.
"""


_GENERATION, _FINGERPRINT = "generation", "fingerprint"
"""The properties with the generation of an epoch's new windows (V2) and the digest of the definition's meaning."""


@dataclass(frozen=True)
class EpochCommit:
    """The epoch of a commit: its clock and, in a ledger, the definition and engine that folded the epoch.

    `idle` is only used in logs. `set_aside` is the number of records that the ledger's definition has set aside up to
    the epoch. A commit that does not belong to a new epoch, such as taking a lease or publishing a backfill, repeats
    the last epoch's properties.
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
        """Read the epoch from a commit's properties. Missing properties get the values from before the first epoch.

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
        """The properties that describe the epoch in a ledger's commit."""
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
    """Return the properties that describe a clock in a commit.

    >>> clock_properties(Clock(7, 5, 9, ("go",)))
    {'epoch': '7', 'watermark': '5', 'processing_time': '9', 'signals': 'go'}
    """
    properties = {
        "epoch": str(clock.epoch),
        **dict(zip(CLOCK, map(str, (clock.watermark, clock.processing_time)), strict=True)),
    }
    return {**properties, NAMES: ",".join(clock.signals)} if clock.signals else properties


def epoch_commits(lake: Lake, table: str) -> dict[int, EpochCommit]:
    """Read all epochs of a log or a ledger from its commits' properties, including commits with expired snapshots."""
    found: dict[int, EpochCommit] = {}
    for one in commits(lake, table).all:
        # The first commit of an epoch counts: commits outside the stream repeat the last epoch's properties.
        if CLOCK[1] in one.properties:
            found.setdefault(int(one.properties["epoch"]), EpochCommit.of(one.properties))
    return found


def processing_times(lake: Lake, table: str) -> dict[int, int]:
    """Read the processing time of each epoch of a log, in microseconds, from its commits."""
    return {epoch: commit.clock.processing_time for epoch, commit in epoch_commits(lake, table).items()}


def last_epoch(lake: Lake, logs: Iterable[Log]) -> int:
    """Return the last epoch that all of these logs have, because an epoch is one cut over all logs.

    Returns -1 if one of the logs has no epoch yet. A log that another stream lands alone for a while is ahead of the
    other logs. Raises `LakeError` if a log does not exist.
    """
    return min(lake.head(log.name).number("epoch") for log in logs)


def carry_forward(lake: Lake, table: str) -> None:
    """Repeat the properties of Tailrace's last commit in a new commit, if a foreign commit has followed (X3).

    The properties are then at the table's head, so they are not lost when older snapshots expire. A maintenance
    operation of Spark, for example, makes a foreign commit.
    """
    while True:
        loaded = lake.table(table)
        current, head = loaded.current_snapshot(), head_of(loaded)
        if current is None or not head.properties or properties_of(current):
            return
        # Otherwise a writer has committed, so its commit has the properties, or there is another foreign commit.
        with suppress(MovedError):
            lake.mark(table, {**repeated_properties(head.properties), MAINTAINED: "true"}, head.snapshot)
            return


def progress_of(lake: Lake, log: str) -> Progress | None:
    """Read a log's progress from its last commit; return None before the log's first epoch.

    Raises `LakeError` if the log does not exist.
    """
    return progress_in(lake.head(log))


def progress_in(head: Head) -> Progress | None:
    """Read a log's progress from its head; return None before the log's first epoch."""
    return Progress.parsed(head.properties[PROGRESS]) if PROGRESS in head.properties else None
