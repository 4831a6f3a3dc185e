"""The sources of a stream's logs: one for each, the one that the log was begun with, and whether it can be reached.

The position that a log keeps is one in its own source, so another source is refused: its offsets would be taken for
offsets that were read already. A log begun with a folder goes on with files, a log begun with a topic with that topic.
Kafka gives each topic an id of its own, which the log's commits say: a topic that was deleted and made again under its
name is read only where somebody says its id, and then from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.fold.fold_group import StreamError
from tailrace.ingest.checkpoint import NOT_READ
from tailrace.ingest.sources import SECURITY, Files, Kafka, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import MAINTAINED, repeated_properties
from tailrace.lake.commit.epoch_properties import OFFSET, TOPIC
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.logs.log import Log

PATIENCE = 5
"""Seconds that a broker has to answer a question about a topic."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers give whose topics have none."""


def sources_of(logs: Mapping[str, Log], given: Source | Mapping[str, Source]) -> dict[str, Source]:
    """Assign its source to each log. Raises `StreamError` where a log has none, or a source no log."""
    if not isinstance(given, Mapping):
        if len(logs) > 1:
            names = ", ".join(logs)
            raise StreamError(f"the definitions read {len(logs)} logs, {names}: name the log of each source")
        return dict.fromkeys(logs, given)
    faults = [f"log {name} has no source" for name in logs if name not in given]
    faults += [
        f"no definition reads log {name}, which {source} is for" for name, source in given.items() if name not in logs
    ]
    places = [str(source) for source in given.values()]
    faults += [f"{place} is given for two logs" for place in sorted({one for one in places if places.count(one) > 1})]
    if faults:
        raise StreamError("; ".join(faults))
    return {name: given[name] for name in logs}


class TopicError(SourceError):
    """A topic was deleted and made again under the name that the log read."""

    def __init__(self, log: str, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"topic {topic} was deleted and made again since log {log} read it (its id was {before}, and is {now}): "
            "the log keeps its records, messages of the former topic that it had not read are gone, and nothing is "
            "read of the new topic, whose offsets start over; to read it from its beginning, start the stream with "
            f"--new-topic {now}"
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
                self.lake.mark(log, {**repeated_properties(head.properties), **anew}, head.snapshot)
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


class LogSourceError(SourceError):
    """A source that could not be read, of a known log."""

    def __init__(self, log: str, source: Source, error: Exception) -> None:
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        super().__init__(f"log {log} cannot be read from {source}: {str(said).split(chr(10), 1)[0]}")
        self.log = log


def unreachable(spark: SparkSession, source: Source) -> str | None:
    """Say why a source cannot be reached now; None where it can."""
    jvm: Any = spark._jvm
    try:
        if isinstance(source, Files):
            path = jvm.org.apache.hadoop.fs.Path(source.folder)
            there = path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path)
            return None if there else f"the folder {source.folder} is not there"
        described(spark, source)
    except Py4JJavaError as error:
        reason = str(error.java_exception.toString()).split("\n", 1)[0]
        return f"{source} cannot be reached: {reason}"
    return None
