"""Refuse a source other than the one that a log was read from: its offsets would be taken for those already read.

A log begun with a folder goes on with files, a log begun with a topic with that topic. Kafka gives each topic an id of
its own, which the log's commits say: a topic that was deleted and made again under its name is read only where somebody
says its id, and then from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.ingest.checkpoint import NOT_READ
from tailrace.ingest.sources import SECURITY, Kafka, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import MAINTAINED, repeated
from tailrace.lake.commit.epoch_properties import OFFSET, TOPIC
from tailrace.lake.schema.lake_errors import MovedError

PATIENCE = 5
"""Seconds that a broker has to answer a question about a topic."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers give whose topics have none."""


class TopicError(SourceError):
    """A topic is another one than the log read, under the same name."""

    def __init__(self, log: str, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"topic {topic} was deleted and made again since log {log} read it (its id was {before}, and is {now}): "
            "what the log has stays, what it had not read of the former topic is gone, and nothing is read of the new "
            f"one, whose offsets begin anew; to read that from its beginning, start the stream with --new-topic {now}"
        )


class SourceIdentities:
    """The sources that a stream reads, each the one that its log was begun with; topics are known by their ids.

    Raises `SourceError` where a log was begun with a source of another kind or with another topic, and `TopicError`
    where its topic was made again. Where the new topic was named (`Kafka.new_topic`), the log is marked as having read
    nothing of it; this is done before the log's lease is taken.
    """

    def __init__(self, spark: SparkSession, lake: Lake, sources: Mapping[str, Source]) -> None:
        self.spark, self.lake = spark, lake
        for log, source in sources.items():
            if lake.has(log):
                _check_source(log, source, lake.head(log).properties.get(OFFSET, NOT_READ))
        self._topics = {log: source for log, source in sources.items() if isinstance(source, Kafka)}
        self._ids: dict[str, str] = {}
        for log, topic in self._topics.items():
            if (now := self._asked(topic)) is not None:
                self._ids[log] = now
                self._recognize(log, topic, now)

    def properties(self, log: str) -> dict[str, str]:
        """Return the property by which a log's commit says which topic it read; none where that has no id."""
        return {TOPIC: f"{self._topics[log].topic} {self._ids[log]}"} if log in self._ids else {}

    def check(self, log: str) -> None:
        """Check that a log's topic is still the same. Raises `TopicError` where it is not."""
        if log in self._ids and (now := self._asked(self._topics[log])) not in (None, self._ids[log]):
            raise TopicError(log, self._topics[log].topic, self._ids[log], str(now))

    def _recognize(self, log: str, topic: Kafka, now: str) -> None:
        while self.lake.has(log):
            head = self.lake.head(log)
            name, _, before = head.properties.get(TOPIC, "").partition(" ")
            if name != topic.topic or before == now:
                return
            if topic.new_topic != now:
                raise TopicError(log, name, before, now)
            anew = {TOPIC: f"{name} {now}", OFFSET: NOT_READ, MAINTAINED: "true"}
            with suppress(MovedError):
                self.lake.mark(log, {**repeated(head.properties), **anew}, head.snapshot)
                return

    def _asked(self, topic: Kafka) -> str | None:
        """Ask for a topic's id; None where the broker says none, does not answer, or has no such topic."""
        try:
            id = str(described(self.spark, topic).topicId().toString())
        except Py4JJavaError:
            # Reading the topic says why.
            return None
        return None if id == _NO_ID else id


def _check_source(log: str, source: Source, offset: str) -> None:
    """Check that a log that was read up to `offset` goes on with its source. Raises `SourceError` where it does not."""
    if offset == NOT_READ:
        return
    read = json.loads(offset)
    before = "files" if "logOffset" in read else f"Kafka topic {', '.join(read)}"
    if before != (f"Kafka topic {source.topic}" if isinstance(source, Kafka) else "files"):
        raise SourceError(
            f"log {log} was read from {before} so far, and this stream has {source} for it: a log's position is one "
            f"in its own source; go on with {before}, or declare a log of its own for {source} and read both by a Union"
        )


def described(spark: SparkSession, topic: Kafka) -> Any:
    """Return Kafka's description of a topic, an object of Java's. Raises `Py4JJavaError` where it is not to be had."""
    jvm: Any = spark._jvm
    with _admin(jvm, topic) as admin:
        names = jvm.java.util.Collections.singletonList(topic.topic)
        found = admin.describeTopics(names).allTopicNames().get(PATIENCE, jvm.java.util.concurrent.TimeUnit.SECONDS)
        return found.get(topic.topic)


@contextmanager
def _admin(jvm: Any, topic: Kafka) -> Iterator[Any]:
    properties = jvm.java.util.Properties()
    options = {"kafka.bootstrap.servers": topic.bootstrap, **SECURITY[topic.security]}
    for name, value in options.items():
        properties.put(name.removeprefix("kafka."), value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        properties.put(name, str(PATIENCE * 1000))
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))
