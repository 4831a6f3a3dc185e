"""Declare the numbers that the simulation assumes, as nobody here has measured them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """Holds the assumed numbers of the place and of the work, in seconds, bytes and counts."""

    round_trip: float = 0.05
    """Seconds of a request to S3 or to Glue that a commit waits for."""
    trips_of_commit: int = 6
    """Requests that a catalog's commit waits for, one after the other: look, list, manifest, metadata, swap, look."""
    task_write: float = 0.2
    """Seconds that a task waits for S3 until a file is there."""
    checkpoint_writes: int = 3
    """Files that Structured Streaming writes to its checkpoint in an epoch."""
    reads_of_file: float = 2.0
    """Times that a file of data or metadata is read again: by the next look, by maintenance, by people."""
    driver_cores: int = 4
    memory_of_core: float = 4.0
    """GB of a worker for each of its cores, as EMR Serverless has it by default."""
    keys_of_core: int = 1_000
    """Keys that records come from, for each core of the stream."""
    window: float = 600.0
    """Seconds of a window; the open ones are those of two, as records are up to that late."""
    record_bytes: float = 100.0
    """Bytes of a record as a message in Kafka."""
    retention: float = 86_400.0
    """Seconds that Kafka keeps a record."""
    months: float = 1.0
    """Months that the tables are kept, and paid for."""
    mean_load: float = 0.6
    """Records of a day, as a part of what could be sustained."""
    swing: float = 0.5
    """How far the rate goes up and down over a day: at its height a day has `mean_load * (1 + swing)`."""
    longest: float = 60.0
    """Seconds within which 95 % of a day's records are to be in the ledger."""
    most_records_of_core: int = 8_000_000
    """Records that an epoch may have for each core: executors keep them until they are folded, at 60 bytes or so."""
    most_heap: float = 32e9
    """Bytes of a driver's heap beyond which settings are not considered."""
    retained_stages: int = 100
    """Stages that Spark's driver remembers (`engines.spark.session`), each with its tasks."""
    stages: int = 10
    """Stages of an epoch."""
    most_snapshots: int = 500
    """Snapshots at which a stream trims a table (`TAILRACE_MOST_SNAPSHOTS`), to a fifth of them."""
    rows_of_file: int = 100_000
    """Answers in a file."""
