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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.checkpoint import NOT_READ
from tailrace.ingest.row_landing import NOTHING
from tailrace.ingest.sources import Files, Kafka, Source, SourceError, topic_offsets
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import MAINTAINED, Head, repeated_properties
from tailrace.lake.commit.epoch_properties import BEGAN, OFFSET, PROGRESS, READ, TOPIC, progress_in
from tailrace.lake.schema.contracts import landed_contract
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.given_sources import readers_of, source_faults, unnamed_source
from tailrace.model.logs.log import Log
from tailrace.stream.kafka_topics import Offsets, by_topic, first_offsets, topic_ids


def sources_of(definitions: Sequence[Definition], given: Source | Mapping[str, Source]) -> dict[str, Source]:
    """Return the source of each log that the definitions read.

    Raises `StreamError` if a log has no source, or if a source belongs to no log.
    """
    logs = readers_of(definitions)
    if not isinstance(given, Mapping):
        if (fault := unnamed_source(definitions)) is not None:
            raise StreamError(f"{fault}: name the log of each source")
        return dict.fromkeys(logs, given)
    places = {log: str(source) for log, source in given.items()}
    if faults := source_faults(definitions, places, lambda log: f"pass {{{log!r}: Files(...)}} or a Kafka source"):
        raise StreamError("; ".join(faults))
    return {log: given[log] for log in logs}


class TopicError(SourceError):
    """The error for a log whose topic was deleted and created again with the same name."""

    def __init__(self, log: str, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"topic {topic} was deleted and made again since log {log} read it (its id was {before}, and is {now}): "
            "the log keeps its records, messages of the former topic that it had not read are gone, and nothing is "
            "read of the new topic, whose offsets start over; to read it from its beginning, start the stream with "
            f"--new-topic {now}"
        )


class GoneTopicError(SourceError):
    """The error for a log of several topics, of which one was deleted."""

    def __init__(self, log: str, topic: str) -> None:
        super().__init__(
            f"topic {topic}, which log {log} has read, is gone: the log keeps its records, and messages that it had "
            f"not read are lost; to go on without the topic, start the stream with --gone-topic {topic}"
        )


class SourceIdentities:
    """The check that a stream reads the original sources of its logs; topics are identified by their ids.

    Raises `SourceError` if a log began with another kind of source or with another topic, `TopicError` if a log's topic
    was created again, and `GoneTopicError` if a topic of several was deleted. If the user passes the id of the new
    topic or the name of the deleted topic, there is no error. Instead, a commit of the log records that nothing of the
    topic has been read; this commit is made before the log's lease is taken.

    If a log has no epoch yet, and its source has a start, such a commit records the offsets of the start. So if the
    stream dies before the first epoch, the next stream begins at the same offsets.
    """

    def __init__(self, spark: SparkSession, lake: Lake, logs: Mapping[str, Log], sources: Mapping[str, Source]) -> None:
        self.spark, self.lake = spark, lake
        for log, source in sources.items():
            if lake.has(log):
                _check_source(log, source, lake.head(log).properties.get(OFFSET, NOT_READ))
        self._topics = {log: source for log, source in sources.items() if isinstance(source, Kafka)}
        self._ids: dict[str, dict[str, str]] = {}
        for log, topic in self._topics.items():
            if (now := self._asked(topic)) is not None:
                if topic.pattern and not now:
                    raise SourceError(f"no topic of {topic.bootstrap} matches {topic.topic}: create one, or correct it")
                self._ids[log] = now
                self._recognize(log, topic, now)
            if topic.start is not None:
                self._begin(logs[log], topic)
        heads = {log: lake.head(log).properties for log in self._topics if lake.has(log)}
        self._began = {log: {BEGAN: held[BEGAN]} for log, held in heads.items() if BEGAN in held}

    def properties(self, log: str, offset: str) -> dict[str, str]:
        """Return the properties with which a log's commit records the topics that are read up to `offset`.

        These are the topics' ids, if the topics have ids, and where the log began, if a start said so.
        """
        ids = self._ids.get(log, {})
        read = dict.fromkeys(topic for topic, _ in topic_offsets(offset))
        if ids and (new := [topic for topic in read if topic not in ids]):
            ids |= self._asked(self._topics[log], new) or {}
        known = {topic: id for topic, id in ids.items() if id and (topic in read or not read)}
        return self._began.get(log, {}) | ({TOPIC: _topics_text(known)} if known else {})

    def check(self, log: str) -> None:
        """Check that no topic of a log has been created again. Raises `TopicError` if one has been created again."""
        if before := self._ids.get(log):
            for topic, now in (self._asked(self._topics[log], list(before)) or {}).items():
                if now and now != before.get(topic, now):
                    raise TopicError(log, topic, before[topic], now)

    def _recognize(self, log: str, source: Kafka, now: Mapping[str, str]) -> None:
        while self.lake.has(log):
            head = self.lake.head(log)
            before = _topics_in(head.properties.get(TOPIC, ""))
            offsets = by_topic(topic_offsets(head.properties.get(OFFSET, NOT_READ)))
            recreated = {name for name, id in before.items() if now.get(name) not in (None, "", id)}
            gone = {name for name in offsets if source.pattern and name not in now}
            if not recreated and not gone:
                return
            for name in sorted(recreated):
                if now[name] not in source.new_topics:
                    raise TopicError(log, name, before[name], now[name])
            if left := sorted(gone - {*source.gone_topics}):
                raise GoneTopicError(log, left[0])
            kept = {name: at for name, at in offsets.items() if name not in recreated | gone}
            ids = {name: now[name] for name in before if now.get(name)}
            marked = {OFFSET: _offsets_text(kept) if kept else NOT_READ, TOPIC: _topics_text(ids), MAINTAINED: "true"}
            if gone and (progress := progress_in(head)) is not None:
                # A partition that is gone must not hold the watermark back for ever.
                stay = {name: one for name, one in progress.partitions.items() if name.rpartition("-")[0] not in gone}
                marked[PROGRESS] = replace(progress, partitions=stay).text()
            if self._marked(log, head, marked):
                return

    def _begin(self, log: Log, source: Kafka) -> None:
        """Record the offsets of a source's start in a log that has not read anything."""
        self.lake.ensure(landed_contract(log), NOTHING)
        while True:
            head = self.lake.head(log.name)
            if head.number("epoch") >= 0 or head.properties.get(OFFSET, NOT_READ) != NOT_READ:
                return
            try:
                offsets = first_offsets(self.spark, source)
            except Py4JJavaError as error:
                raise LogSourceError(log.name, source, error) from error
            position = dict(zip(READ, (str(uuid4()), "0", _offsets_text(offsets)), strict=True))
            began = json.dumps({"start": str(source.start), "offsets": offsets})
            if self._marked(log.name, head, {**position, BEGAN: began, MAINTAINED: "true"}):
                return

    def _marked(self, log: str, head: Head, properties: Mapping[str, str]) -> bool:
        """Commit properties to a log; return False if another commit came before."""
        with suppress(MovedError):
            self.lake.mark(log, {**repeated_properties(head.properties), **properties}, head.snapshot)
            return True
        return False

    def _asked(self, source: Kafka, names: Sequence[str] | None = None) -> dict[str, str] | None:
        """Request the ids of topics from the brokers.

        Returns None if the broker does not answer, or if the topic does not exist. An id is empty if the broker does
        not support topic ids.
        """
        try:
            return topic_ids(self.spark, source, names)
        except Py4JJavaError:
            # The reason for the failure is reported later, when the topic is read.
            return None


def _offsets_text(offsets: Offsets) -> str:
    return json.dumps(offsets, separators=(",", ":"))


def _topics_text(ids: Mapping[str, str]) -> str:
    """Write topics and their ids.

    >>> _topics_text({"b": "2", "a": "1"}), _topics_in("a 1,b 2")
    ('a 1,b 2', {'a': '1', 'b': '2'})
    """
    return ",".join(f"{name} {id}" for name, id in sorted(ids.items()))


def _topics_in(text: str) -> dict[str, str]:
    parts = (one.partition(" ") for one in text.split(",") if one)
    return {name: id for name, _, id in parts}


def _check_source(log: str, source: Source, offset: str) -> None:
    """Check that `source` is the source from which a log was read up to `offset`.

    Raises `SourceError` if the log was read from a different source.
    """
    if offset == NOT_READ:
        return
    read = json.loads(offset)
    of_files = "logOffset" in read
    fits = of_files == isinstance(source, Files)
    if isinstance(source, Kafka) and not of_files:
        fits = all(source.reads(name) or name in source.gone_topics for name in read)
    if not fits:
        before = "files" if of_files else f"Kafka topic {', '.join(read)}"
        raise SourceError(
            f"log {log} was read from {before} so far, and this stream has {source} for it: a log's position is one "
            f"in its own source; go on with {before}, or declare a log of its own for {source} and read both by a Union"
        )


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
        topic_ids(spark, source)
    except Py4JJavaError as error:
        return f"{source} cannot be reached: {_shown(source, error.java_exception.toString())}"
    return None


def _shown(source: Source, message: object) -> str:
    """Return the first line of an error's message, without the secrets of the source."""
    line = str(message).split("\n", 1)[0]
    return source.access.hide(line) if isinstance(source, Kafka) else line
