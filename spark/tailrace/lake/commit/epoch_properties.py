"""Read and write the properties by which a commit of a log or ledger describes its epoch (rule X2)."""

from __future__ import annotations

import json
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
"""The names of the properties with an epoch's watermark and processing time, in microseconds."""

PROGRESS = "progress"
"""The name of the property that records how far each partition of the source was read (`Progress`)."""

OFFSET = "offset"
READ = ("query", "batch", OFFSET)
"""The names of the properties that record the position in the source: Spark's query, the query's micro-batch, and the
offset.
"""

TOPIC = "topic"
"""The name of the property in which a log's commit identifies the Kafka topics that were read.

The value is a list, with commas, of each topic's name, a space, and the topic's id.
"""

BEGAN = "began"
"""The name of the property in which a log's commits record where the log began in its topics, as `--start` said.

The value is JSON: the option's value (`start`), and the first `offsets` that were read. The property is missing if the
log began with the first message of each topic.
"""

ENGINE = "engine"
"""The name of the property that names the engine that folded an epoch, and the reason why this engine was chosen.

The value is the text of an `engines.choose.Choice`.
"""

ONWARD = "onward"
"""The name of the property in which a ledger's commit stores the watermark for the ledger's readers (rule T3).

This watermark applies after the commit's epoch.
"""

_SET_ASIDE = "set_aside"
"""The name of the property in which a ledger's commit counts the records set aside in all epochs so far (rule X7)."""

IDLE = "idle"
"""The name of a property that a log's commit has only if all partitions of the source are idle.

A definition that reads several logs then does not wait for this log.
"""

DUPLICATES = "duplicates"
"""The name of the property that counts the duplicates dropped in this epoch and all earlier epochs (rule X5)."""

ROUNDED = "rounded"
"""The name of the property that counts the decimals that were rounded in this epoch and all earlier epochs."""

FOLDER = "folder"
"""The name of the property in which a log's commit counts the changed, moved and hidden files of the landing folder.

The value is JSON. The property is missing if the folder has no changed, moved or hidden files.
"""

NEAR = "near_names"
"""The name of the property in which a log's commit records probable misspellings of columns by the source.

The value is JSON: it maps a field of the records that the log does not declare to the declared column that has almost
the same name and that the records lack. The property is missing if there are no such fields.
"""


_GENERATION, _FINGERPRINT = "generation", "fingerprint"
"""The names of two properties: the generation of the windows that the epoch creates (V2), and the fingerprint of the
definition.
"""


@dataclass(frozen=True)
class EpochCommit:
    """The epoch of a commit: its clock and, in a ledger, the definition and the engine that folded the epoch.

    `idle` is used only in logs. `set_aside` is the number of records that the ledger's definition has set aside in all
    epochs so far. A commit that takes a lease or publishes a backfill does not belong to a new epoch, and repeats the
    last epoch's properties.
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
        """Read the epoch from a commit's properties. A missing property gets a default, such as epoch -1 or generation
        1.

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
    """Return the properties by which a commit describes a clock.

    >>> clock_properties(Clock(7, 5, 9, ("go",)))
    {'epoch': '7', 'watermark': '5', 'processing_time': '9', 'signals': 'go'}
    """
    numbers = {name: str(getattr(clock, name)) for name in ("epoch", *CLOCK)}
    return {**numbers, NAMES: ",".join(clock.signals)} if clock.signals else numbers


def epoch_commits(lake: Lake, table: str) -> dict[int, EpochCommit]:
    """Read all epochs of a log or a ledger from its commits' properties.

    Commits whose snapshots have expired are included.
    """
    found: dict[int, EpochCommit] = {}
    for one in commits(lake, table).all:
        # The first commit with an epoch's properties is the epoch's own commit. Later commits outside the stream repeat
        # these properties.
        if CLOCK[1] in one.properties:
            found.setdefault(int(one.properties["epoch"]), EpochCommit.of(one.properties))
    return found


def processing_times(lake: Lake, table: str) -> dict[int, int]:
    """Return the processing time, in microseconds, of each epoch of a log, from the log's commits."""
    return {epoch: commit.clock.processing_time for epoch, commit in epoch_commits(lake, table).items()}


def last_epoch(lake: Lake, logs: Iterable[Log]) -> int:
    """Return the last epoch that is complete, which means that every given log has a commit for this epoch.

    A stream that lands only one of the logs can put this log ahead of the other logs. The log that is furthest behind
    determines the result. Returns -1 if one of the logs has no epoch yet. Raises `LakeError` if a log does not exist.
    """
    return min(lake.head(log.name).number("epoch") for log in logs)


def carry_forward(lake: Lake, table: str) -> None:
    """If the latest commit is foreign, repeat the properties of Tailrace's last commit in a new commit (rule X3).

    The table's current snapshot then has these properties. So the properties are not lost when older snapshots expire.
    Spark's maintenance operations, for example, make foreign commits.
    """
    while True:
        loaded = lake.table(table)
        current, head = loaded.current_snapshot(), head_of(loaded)
        if current is None or not head.properties or properties_of(current):
            return
        # If another writer commits first, look again: the other writer's commit may have the properties, or may also be
        # foreign.
        with suppress(MovedError):
            lake.mark(table, {**repeated_properties(head.properties), MAINTAINED: "true"}, head.snapshot)
            return


def began_text(head: Head) -> str | None:
    """Return where a log began in its topics, for people; return None if it began with their first messages."""
    if BEGAN not in head.properties:
        return None
    began = json.loads(head.properties[BEGAN])
    places = [f"{topic}-{part} at {at}" for topic, of in sorted(began["offsets"].items()) for part, at in of.items()]
    more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
    return f"{began['start']}: {', '.join(places[:_PLACES])}{more}"


_PLACES = 8
"""The number of partitions whose first offsets are shown."""


def progress_of(lake: Lake, log: str) -> Progress | None:
    """Read from a log's last commit how far the source was read; return None before the log's first epoch.

    Raises `LakeError` if the log does not exist.
    """
    return progress_in(lake.head(log))


def progress_in(head: Head) -> Progress | None:
    """Read from a log's head how far the source was read; return None before the log's first epoch."""
    return Progress.parsed(head.properties[PROGRESS]) if PROGRESS in head.properties else None
