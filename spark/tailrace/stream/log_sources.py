"""The sources of a stream's logs.

Each log must keep its original source, and the stream must be able to reach the source. A log records up to which
position its original source was read. A different source is refused: the recorded position does not apply to another
source, so records would be skipped. A log that began with files must continue with files; a log that began with a topic
must continue with the same topic. Kafka assigns a unique id to each topic, and the log's commits record this id. If a
topic was deleted and created again with the same name, the new topic is read only if the user passes the id of the new
topic. The new topic is then read from its beginning.
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
from tailrace.ingest.sources import Files, Kafka, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import MAINTAINED, repeated_properties
from tailrace.lake.commit.epoch_properties import OFFSET, TOPIC
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.logs.log import Log

PATIENCE = 5
"""The maximum number of seconds to wait for a broker's answer to a request about a topic."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that a broker returns if it does not support topic ids."""


def sources_of(logs: Mapping[str, Log], given: Source | Mapping[str, Source]) -> dict[str, Source]:
    """Return the source of each log. Raises `StreamError` if a log has no source, or if a source belongs to no log."""
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
    """The error for a log whose topic was deleted and created again with the same name."""

    def __init__(self, log: str, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"topic {topic} was deleted and made again since log {log} read it (its id was {before}, and is {now}): "
            "the log keeps its records, messages of the former topic that it had not read are gone, and nothing is "
            "read of the new topic, whose offsets start over; to read it from its beginning, start the stream with "
            f"--new-topic {now}"
        )


class SourceIdentities:
    """The check that a stream reads the original sources of its logs; topics are identified by their ids.

    Raises `SourceError` if a log began with another kind of source or with another topic, and `TopicError` if a log's
    topic was created again. If the user passes the id of the new topic (`Kafka.new_topic`), there is no error. Instead,
    a commit of the log records that nothing of the new topic has been read yet; this commit is made before the log's
    lease is taken.
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
        """Return the property with which a log's commit records its topic.

        If the topic has no id, the dict is empty.
        """
        return {TOPIC: f"{self._topics[log].topic} {self._ids[log]}"} if log in self._ids else {}

    def check(self, log: str) -> None:
        """Check that a log's topic has not been created again. Raises `TopicError` if the topic has been created
        again.
        """
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
        """Request the id of a topic from the broker.

        Returns None if the broker does not support topic ids, if the broker does not answer, or if the topic does not
        exist.
        """
        try:
            id = str(described(self.spark, topic).topicId().toString())
        except Py4JJavaError:
            # The reason for the failure is reported later, when the topic is read.
            return None
        return None if id == _NO_ID else id


def _check_source(log: str, source: Source, offset: str) -> None:
    """Check that `source` is the source from which a log was read up to `offset`.

    Raises `SourceError` if the log was read from a different source.
    """
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
    """Request the description of a topic from Kafka, and return it as a Java object. Raises `Py4JJavaError` on
    failure.
    """
    jvm: Any = spark._jvm
    with _admin(jvm, topic) as admin:
        names = jvm.java.util.Collections.singletonList(topic.topic)
        found = admin.describeTopics(names).allTopicNames().get(PATIENCE, jvm.java.util.concurrent.TimeUnit.SECONDS)
        return found.get(topic.topic)


@contextmanager
def _admin(jvm: Any, topic: Kafka) -> Iterator[Any]:
    properties = jvm.java.util.Properties()
    options = {"bootstrap.servers": topic.bootstrap, **topic.access.java}
    for name, value in options.items():
        properties.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        properties.put(name, str(PATIENCE * 1000))
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


class LogSourceError(SourceError):
    """The error for a source that could not be read; it names the log to which the source belongs."""

    def __init__(self, log: str, source: Source, error: Exception) -> None:
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        super().__init__(f"log {log} cannot be read from {source}: {_shown(source, said)}")
        self.log = log


def unreachable(spark: SparkSession, source: Source) -> str | None:
    """Return the reason why a source cannot be reached at present, or None if it can be reached."""
    jvm: Any = spark._jvm
    try:
        if isinstance(source, Files):
            path = jvm.org.apache.hadoop.fs.Path(source.folder)
            there = path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path)
            return None if there else f"the folder {source.folder} is not there"
        described(spark, source)
    except Py4JJavaError as error:
        return f"{source} cannot be reached: {_shown(source, error.java_exception.toString())}"
    return None


def _shown(source: Source, message: object) -> str:
    """Return the first line of an error's message, without the secrets of the source."""
    line = str(message).split("\n", 1)[0]
    return source.access.hide(line) if isinstance(source, Kafka) else line
