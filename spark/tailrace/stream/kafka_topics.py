"""Ask Kafka's brokers about the topics of a source: which topics there are, their ids, and offsets.

Java's client asks, through the JVM of Spark, so that it signs in as Spark's own source does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tailrace.ingest.sources import Kafka, SourceError

PATIENCE = 5
"""The maximum number of seconds to wait for a broker's answer to a request about topics."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that a broker returns if it does not support topic ids."""

Offsets = dict[str, dict[str, int]]
"""For each topic and partition, the offset of the next message to read. Spark writes offsets in the same form."""


def topic_ids(spark: SparkSession, source: Kafka, names: Sequence[str] | None = None) -> dict[str, str]:
    """Return the topics of a source, with their ids. The id is empty if the brokers do not support topic ids.

    If `names` is not None, only these topics are asked for, and topics that do not exist are left out. Raises
    `Py4JJavaError` if the brokers do not answer, or if the source's only topic does not exist.
    """
    with _admin(spark, source) as admin:
        wanted = _names(spark, admin, source)
        if names is not None and source.pattern:
            wanted = [name for name in wanted if name in names]
        ids = {name: str(one.topicId().toString()) for name, one in _described(spark, admin, wanted).items()}
    return {name: "" if id == _NO_ID else id for name, id in ids.items()}


def first_offsets(spark: SparkSession, source: Kafka) -> Offsets:
    """Return the offsets at which a source's start begins.

    Raises `SourceError` if the start names partitions or offsets that do not exist, and `Py4JJavaError` if the brokers
    do not answer.
    """
    start = source.start
    assert start is not None
    jvm: Any = spark._jvm
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    with _admin(spark, source) as admin:
        found = _described(spark, admin, _names(spark, admin, source))
        partitions = sorted((name, int(one.partition())) for name, topic in found.items() for one in topic.partitions())

        def listed(made: Callable[[], Any]) -> Mapping[tuple[str, int], int]:
            # With this isolation, the end is before transactions that are still open.
            committed = jvm.org.apache.kafka.common.IsolationLevel.READ_COMMITTED
            asked, options = jvm.java.util.HashMap(), jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(committed)
            keys = {one: jvm.org.apache.kafka.common.TopicPartition(*one) for one in partitions}
            for key in keys.values():
                asked.put(key, made())
            answer = _awaited(jvm, admin.listOffsets(asked, options).all())
            return {one: int(answer.get(key).offset()) for one, key in keys.items()}

        last = listed(spec.latest)
        if start.latest:
            return by_topic(last)
        if start.time is not None:
            at = start.time
            since = listed(lambda: spec.forTimestamp(at))
            # If no message has arrived since, the offset is negative.
            return by_topic({one: offset if offset >= 0 else last[one] for one, offset in since.items()})
        first = listed(spec.earliest)
    given = {(name, int(number)): at for name, of in start.offsets.items() for number, at in of.items()}
    faults = [f"{name} has no partition {number}" for name, number in given if (name, number) not in last]
    faults += [
        f"partition {one[1]} of {one[0]} has the offsets {first[one]} to {last[one]}, not {at}"
        for one, at in given.items()
        if one in last and not first[one] <= at <= last[one]
    ]
    if faults:
        raise SourceError(f"--start {start}: {'; '.join(faults)}")
    return by_topic({**first, **given})


def by_topic(offsets: Mapping[tuple[str, str], int] | Mapping[tuple[str, int], int]) -> Offsets:
    """Group the offsets of topics and partitions by topic."""
    found: Offsets = {}
    for (topic, number), at in offsets.items():
        found.setdefault(topic, {})[str(number)] = at
    return found


def _names(spark: SparkSession, admin: Any, source: Kafka) -> list[str]:
    if not source.pattern:
        return [source.topic]
    jvm: Any = spark._jvm
    pattern = jvm.java.util.regex.Pattern.compile(source.topic)
    return sorted(str(name) for name in _awaited(jvm, admin.listTopics().names()) if pattern.matcher(name).matches())


def _described(spark: SparkSession, admin: Any, names: Sequence[str]) -> dict[str, Any]:
    jvm: Any = spark._jvm
    asked = jvm.java.util.ArrayList()
    for name in names:
        asked.add(name)
    return {str(name): one for name, one in _awaited(jvm, admin.describeTopics(asked).allTopicNames()).items()}


def _awaited(jvm: Any, future: Any) -> Any:
    return future.get(PATIENCE, jvm.java.util.concurrent.TimeUnit.SECONDS)


@contextmanager
def _admin(spark: SparkSession, source: Kafka) -> Iterator[Any]:
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for name, value in {"bootstrap.servers": source.bootstrap, **source.access.java}.items():
        properties.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        properties.put(name, str(PATIENCE * 1000))
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))
