"""Read a bounded sample of a Kafka topic, without Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from tailrace.infer.sample import Sample, SampleError
from tailrace.ingest.kafka_access import KafkaAccess, NoAnswerError
from tailrace.settings import Settings

PATIENCE = 10.0
"""The time, in seconds, to wait for a broker."""

_SILENT = logging.getLogger("tailrace.infer.topics")


def read_topic(
    topic: str, bootstrap: str, access: KafkaAccess, records: int, settings: Settings | None = None
) -> Sample:
    """Read the latest messages of each partition of a topic, at most so many in all.

    `settings` name the schema registry of messages in Avro and Protobuf. No offsets are committed. Raises `SampleError`
    if the topic has no messages that can be read, or cannot be read itself.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise SampleError("topics are read with confluent-kafka: pip install 'tailrace[kafka]'") from error
    if access.security == "iam":
        raise SampleError(
            "a topic with IAM is not read here: write some messages to a file, one on each line, and infer from it"
        )
    options = {
        "bootstrap.servers": bootstrap, "group.id": "tailrace-infer", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": "read_committed", "logger": _SILENT, **access.librdkafka,
    }  # fmt: skip
    failures: list[Any] = []
    whole = f"topic {topic} of {bootstrap} cannot be read"
    try:
        consumer = Consumer({**options, "error_cb": failures.append})
    except KafkaException as error:
        raise SampleError(f"{whole}: {access.hide(error.args[0].str())}") from None
    try:
        found = access.listed(consumer, failures, PATIENCE, topic)[topic]
        sample, came = _read(consumer, found, topic, bootstrap, records)
    except NoAnswerError as error:
        raise SampleError(f"{whole}: {error}") from None
    except KafkaException as error:
        raise SampleError(f"{whole}: {access.hide(error.args[0].str())}") from None
    finally:
        consumer.close()
    _add(sample, came, settings or Settings())
    return sample


Messages: TypeAlias = list[list[tuple[bytes, int]]]
"""The messages of each partition, with the times at which they arrived, in microseconds."""


def _add(sample: Sample, came: Messages, settings: Settings) -> None:
    """Add messages to a sample: texts in JSON, or records in Avro or Protobuf with registered schemas."""
    if _is_framed([value for messages in came for value, _ in messages]):
        try:
            # The modules are imported here because only topics with registered schemas need their packages.
            from tailrace.infer.framed_samples import add_framed
            from tailrace.ingest.framed.schema_registry import SchemaRegistry
        except ImportError as error:
            needed = f"topic {sample.source} has messages with registered schemas, which need package {error.name}"
            raise SampleError(f'{needed}: pip install "tailrace[kafka]"') from error
        add_framed(sample, came, SchemaRegistry(settings))
        return
    for messages in came:
        before = len(sample.records)
        for value, arrived in messages:
            if sample.add_line(value):
                sample.arrivals.append(arrived)
        sample.parts.append(len(sample.records) - before)
    if not sample.records:
        raise SampleError(
            f"topic {sample.source}: none of {sample.unread:,} messages is a JSON object, or a record in Avro or "
            "Protobuf as Confluent's serializers write them"
        )


def _is_framed(values: Sequence[bytes]) -> bool:
    """Return True if most messages begin with a zero and the id of a schema; no text in JSON begins so."""
    return 2 * sum(len(value) >= 5 and value[:1] == b"\0" for value in values) > len(values)


def _read(consumer: Any, found: Any, topic: str, bootstrap: str, records: int) -> tuple[Sample, Messages]:
    from confluent_kafka import KafkaError, TopicPartition

    if found.error is not None or not found.partitions:
        raise SampleError(f"{bootstrap} has no topic {topic}")
    sample = Sample("json", topic, topic, whole=False)
    share = max(1, records // len(found.partitions))
    assigned, ends = [], dict[int, int]()
    for number in sorted(found.partitions):
        first, last = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
        if last > first:
            ends[number] = last
            assigned.append(TopicPartition(topic, number, max(first, last - share)))
    consumer.assign(assigned)
    came: dict[int, list[tuple[bytes, int]]] = {number: [] for number in ends}
    open_parts, until = set(ends), time.monotonic() + PATIENCE
    while open_parts and time.monotonic() < until:
        for message in consumer.consume(500, timeout=0.5):
            until = time.monotonic() + PATIENCE
            number = message.partition()
            if message.error() is not None:
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise SampleError(f"topic {topic} cannot be read: {message.error().str()}")
                open_parts.discard(number)
                continue
            if message.value() is not None and message.offset() < ends[number]:
                came[number].append((message.value(), message.timestamp()[1] * 1000))
            if message.offset() + 1 >= ends[number]:
                open_parts.discard(number)
    return sample, list(came.values())
