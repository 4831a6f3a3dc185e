"""Read a bounded sample of a Kafka topic, without Spark."""

from __future__ import annotations

import logging
import time
from typing import Any

from tailrace.infer.sample import Sample, SampleError
from tailrace.ingest.kafka_access import KafkaAccess, NoAnswerError

PATIENCE = 10.0
"""The time, in seconds, to wait for a broker."""

_SILENT = logging.getLogger("tailrace.infer.topics")


def read_topic(topic: str, bootstrap: str, access: KafkaAccess, records: int) -> Sample:
    """Read the latest messages of each partition of a topic, at most so many in all.

    No offsets are committed. Raises `SampleError` if the topic has no messages in JSON, or cannot be read.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise SampleError('topics are read with confluent-kafka: pip install "tailrace[kafka]"') from error
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
        return _read(consumer, found, topic, bootstrap, records)
    except NoAnswerError as error:
        raise SampleError(f"{whole}: {error}") from None
    except KafkaException as error:
        raise SampleError(f"{whole}: {access.hide(error.args[0].str())}") from None
    finally:
        consumer.close()


def _read(consumer: Any, found: Any, topic: str, bootstrap: str, records: int) -> Sample:
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
    for messages in came.values():
        before = len(sample.records)
        for value, arrived in messages:
            if sample.add_line(value):
                sample.arrivals.append(arrived)
        sample.parts.append(len(sample.records) - before)
    if not sample.records:
        raise SampleError(
            f"topic {topic}: none of {sample.unread:,} messages is a JSON object: for Avro and Protobuf, declare "
            'messages="avro" or "protobuf" in a log, as docs/sources.md shows'
        )
    return sample
