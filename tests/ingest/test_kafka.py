"""A topic of a real broker through the real stream: nothing lost or doubled, and the answers are the batch answers."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from tailrace.cli.terminal.backlog import TopicBacklog
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.sources import Files, Kafka, Source, SourceError, Start
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import BEGAN, progress_of
from tailrace.model.base.time import BEGINNING, days, duration, hours, instant, minutes
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Union
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Progress
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.windows import Fixed
from tailrace.settings import Settings
from tailrace.stream.checkpoint_repair import checkpoint_folder
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

if TYPE_CHECKING:
    from tests.support.services.kafka import Broker

pytest_plugins = ["tests.support.services.kafka"]
pytestmark = pytest.mark.kafka

PARTITIONS = 3
FLIGHTS = Log(
    name="flights",
    columns={"flight": "string", "origin": "string", "scheduled": "timestamp", "delay": "bigint"},
    event_time="scheduled",
    disorder=minutes(30),
)
# Every epoch gives a pane of each window that it touches, and no record is too late: the answers are of all records.
HOURLY = Pipeline(
    name="hourly",
    log=FLIGHTS,
    key=("origin",),
    what={"flights": Count(), "delay": Sum("delay")},
    where=Fixed(hours(1)),
    when=Repeat(AfterCount(1)),
    allowed_lateness=days(365),
)
Message = tuple[int, bytes | None]


@dataclass(frozen=True)
class Topic:
    """A topic of the test's own, and the stream that reads it into the test's lake."""

    broker: Broker
    name: str
    spark: SparkSession
    lake: Lake
    backlogs: list[tuple[int, int] | None] = field(default_factory=list)

    def produce(self, messages: Sequence[Message], **config: Any) -> None:
        self.broker.produce(self.name, messages, **config)

    def drain(self, per_epoch: int | None = None, new_topic: str | None = None, **more: Any) -> list[EpochReport]:
        """Run the stream until the topic has no more."""
        epochs: list[EpochReport] = []
        new_topics = () if new_topic is None else (new_topic,)
        source = replace(Kafka(self.name, self.broker.bootstrap, per_epoch, new_topics=new_topics), **more)
        stream = Stream(self.spark, self.lake, [HOURLY], source, watch=epochs.append)
        try:
            stream.start(once=True)
            stream.wait()
            self.backlogs.append(TopicBacklog(stream.query)())
        finally:
            stream.close()
        return epochs

    def flights(self) -> list[str]:
        return sorted(row["flight"] for row in self.spark.table("flights").collect())

    def rejected(self) -> list[tuple[str, int, bytes | None, str]]:
        rows = self.spark.table("flights__rejected").collect()
        raw = [None if row["raw"] is None else bytes(row["raw"]) for row in rows]
        return [(row["_source"], row["_offset"], r, row["error"]) for row, r in zip(rows, raw, strict=True)]

    def places(self) -> list[tuple[str, int]]:
        """Where every record came from, good and bad."""
        tables = (self.spark.table(name) for name in ("flights", "flights__rejected"))
        return [(row["_source"], row["_offset"]) for table in tables for row in table.collect()]

    def answers(self) -> dict[tuple[str, int], tuple[int, int]]:
        rows = self.spark.sql("SELECT *, UNIX_SECONDS(window_start) AS start FROM hourly").collect()
        return {(row["origin"], row["start"]): (row["flights"], row["delay"]) for row in rows}


@pytest.fixture
def topic(broker: Broker, spark: SparkSession, settings: Settings, request: pytest.FixtureRequest) -> Topic:
    name = re.sub(r"[^\w.-]", "_", request.node.name)[:200]
    broker.create(name, PARTITIONS)
    return Topic(broker, name, spark, Lake(settings))


def flights(count: int, seed: int) -> list[dict[str, Any]]:
    """Flights of a day, in the order in which they become known, which is not that of their schedule."""
    chance = random.Random(seed)
    day = datetime(2013, 1, 1, tzinfo=UTC)
    made = []
    for number in range(count):
        delay = int(chance.expovariate(1 / 20)) - 10
        scheduled = day + timedelta(seconds=chance.randrange(86_400))
        made.append((scheduled + timedelta(minutes=delay), number, scheduled, delay))
    return [
        {
            "flight": f"{seed}-{number}",
            "origin": chance.choice(["EWR", "JFK", "LGA"]),
            "scheduled": f"{scheduled:%Y-%m-%dT%H:%M:%SZ}",
            "delay": delay,
        }
        for _, number, scheduled, delay in sorted(made)
    ]


def messages(records: Sequence[dict[str, Any]]) -> list[Message]:
    return [(place % PARTITIONS, json.dumps(record).encode()) for place, record in enumerate(records)]


def batch(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """The answers, computed at once and without Tailrace."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in records:
        second = int(datetime.fromisoformat(record["scheduled"]).timestamp())
        found[record["origin"], second - second % 3600].append(record["delay"])
    return {window: (len(delays), sum(delays)) for window, delays in found.items()}


def test_a_topic_is_drained_and_a_second_drain_goes_on_where_the_first_stopped(topic: Topic) -> None:
    first, second = flights(2000, seed=1), flights(500, seed=2)
    topic.produce(messages(first))
    epochs = topic.drain(per_epoch=1500)
    assert len(epochs) > 1
    assert sum(epoch.landed.records for epoch in epochs) == len(first)
    assert topic.flights() == sorted(record["flight"] for record in first)
    assert topic.answers() == batch(first)
    assert topic.backlogs == [(len(first), len(first))]

    topic.produce(messages(second))
    topic.broker.grow(topic.name, PARTITIONS + 1)
    topic.produce([(PARTITIONS, value) for _, value in messages(flights(100, seed=3))])
    everything = [*first, *second, *flights(100, seed=3)]
    epochs = topic.drain()
    assert sum(epoch.landed.records for epoch in epochs) == 600
    assert topic.flights() == sorted(record["flight"] for record in everything)
    assert topic.answers() == batch(everything)
    places = topic.places()
    assert len(places) == len(set(places)) == len(everything)
    assert {source for source, _ in places} == {f"{topic.name}-{number}" for number in range(PARTITIONS + 1)}

    assert topic.drain() == []
    assert topic.answers() == batch(everything)


def test_malformed_messages_are_kept_byte_for_byte_and_hold_nothing_up(topic: Topic) -> None:
    good = flights(60, seed=4)
    bad: dict[bytes | None, str] = {
        None: "there is no value",
        b"": "not one JSON object",
        b"\xff\x00\x01": "not UTF-8",
        b'{"flight": "x"': "not one JSON object",
        b'[{"flight": "x"}]': "not one JSON object",
        b'{"flight": "x"}': "the event time scheduled is missing",
        b'{"flight": "x", "scheduled": "2013-01-01T00:00:00Z", "delay": "5"}': 'delay = "5" is not a bigint',
        b'{"flight": "x", "scheduled": "9999-01-01T00:00:00Z"}': (
            "the event time scheduled = 9999-01-01 00:00:00 lies outside [1900-01-01, 2200-01-01): "
            "set earliest and latest in the log"
        ),
    }
    produced = messages(good)
    for place, value in enumerate(bad):
        produced.insert(place * 7, (place % PARTITIONS, value))
    topic.produce(produced)
    (epoch,) = topic.drain()
    assert (epoch.landed.records, epoch.landed.rejected) == (len(good), len(bad))
    assert topic.answers() == batch(good)
    rejected = topic.rejected()
    assert {raw: error for _, _, raw, error in rejected} == bad
    assert len(rejected) == len(bad)
    # The place of each is the one that the broker has it at.
    offsets = {number: [value for partition, value in produced if partition == number] for number in range(PARTITIONS)}
    assert all(offsets[int(source.rsplit("-", 1)[1])][offset] == raw for source, offset, raw, _ in rejected)
    places = topic.places()
    assert len(places) == len(set(places)) == len(produced)
    audited = audit(topic.lake, HOURLY)
    assert audited.ok, [check for check in audited.checks if not check.ok]


def test_what_a_producer_took_back_is_not_read(topic: Topic) -> None:
    kept, taken_back, open_ = flights(20, seed=5), flights(20, seed=6), flights(20, seed=7)
    producer = topic.broker.producer(**{"transactional.id": topic.name})
    producer.init_transactions(60)
    for records, end in ((kept, producer.commit_transaction), (taken_back, producer.abort_transaction), (open_, None)):
        producer.begin_transaction()
        for partition, value in messages(records):
            producer.produce(topic.name, value, partition=partition)
        producer.flush(60)
        if end is not None:
            end(60)
    topic.drain()
    assert topic.flights() == sorted(record["flight"] for record in kept)
    producer.commit_transaction(60)
    topic.drain()
    assert topic.flights() == sorted(record["flight"] for record in [*kept, *open_])
    assert topic.answers() == batch([*kept, *open_])


def test_records_that_the_broker_lost_stop_the_stream(topic: Topic) -> None:
    topic.produce(messages(flights(30, seed=8)))
    topic.drain()
    topic.produce(messages(flights(30, seed=9)))
    topic.broker.forget(topic.name, 0, 15)
    with pytest.raises(Exception, match="OffsetOutOfRange"):
        topic.drain()
    assert len(topic.flights()) == 30


def test_X2_few_messages_that_are_large_do_not_come_into_a_small_process(topic: Topic) -> None:
    small = replace(topic, lake=Lake(topic.lake.settings.model_copy(update={"memory": "40MB"})))
    few, many = flights(40, seed=3), flights(200, seed=4)
    few = [{**one, "flight": f"{one['flight']}{'x' * 300_000}"} for one in few]
    for records, engine in ((few, "spark"), (many, "duckdb")):
        small.produce(messages(records))
        (epoch,) = small.drain()
        assert epoch.landed.records == len(records)
        assert epoch.folded[HOURLY.name].engine == engine
    assert small.flights() == sorted(record["flight"] for record in [*few, *many])
    assert small.answers() == batch([*few, *many])


def test_X2_a_topic_is_read_on_from_where_the_log_says_when_the_checkpoint_is_lost(topic: Topic) -> None:
    first, second, third = flights(300, seed=10), flights(200, seed=11), flights(100, seed=12)
    topic.produce(messages(first))
    topic.drain(per_epoch=100)
    shutil.rmtree(checkpoint_folder(topic.lake, FLIGHTS))
    topic.produce(messages(second))
    # A partition that no commit knows of yet.
    topic.broker.grow(topic.name, PARTITIONS + 1)
    topic.produce([(PARTITIONS, value) for _, value in messages(third)])
    epochs = topic.drain()
    assert sum(epoch.landed.records for epoch in epochs) == len(second) + len(third)
    places = topic.places()
    assert len(places) == len(set(places)) == 600
    assert topic.answers() == batch([*first, *second, *third])
    assert audit(topic.lake, HOURLY).ok


def test_topics_by_a_pattern_are_one_log_that_takes_up_new_topics_and_goes_on_without_a_deleted_one(
    topic: Topic,
) -> None:
    names = [f"{topic.name}.{part}" for part in ("a", "b", "c")]
    pattern: dict[str, Any] = {"topic": rf"{re.escape(topic.name)}\.[a-z]", "pattern": True}
    with pytest.raises(SourceError, match=r"no topic of .* matches"):
        topic.drain(**pattern)
    records = [flights(40, seed=seed) for seed in range(4)]
    for place, name in enumerate(names):
        # The last topic appears after the first drain; a topic like the pattern, but longer, is never read.
        if place < 2:
            topic.broker.create(name, PARTITIONS)
            topic.broker.produce(name, messages(records[place]))
    topic.broker.create(f"{names[0]}longer")
    topic.broker.produce(f"{names[0]}longer", [(0, b"never read")])
    topic.drain(per_epoch=50, **pattern)
    landed: list[int] = []
    source = replace(Kafka(topic.name, topic.broker.bootstrap), **pattern)
    running = Stream(
        topic.spark, topic.lake, [HOURLY], source, watch=lambda epoch: landed.append(epoch.landed.records)
    )  # fmt: skip
    running.start()
    topic.broker.create(names[2], PARTITIONS)
    topic.broker.produce(names[2], messages(records[2]))
    while sum(landed) < 40:
        running.wait(0.2)
    running.stop()
    running.close()
    assert topic.answers() == batch([one for some in records[:3] for one in some])
    places = topic.places()
    assert len(places) == len(set(places)) == 120
    assert {source.rpartition("-")[0] for source, _ in places} == {*names}
    assert audit(topic.lake, HOURLY).ok
    with pytest.raises(SourceError, match="log flights was read from Kafka topic"):
        topic.drain(topic=names[0])

    topic.broker.delete(names[0])
    with pytest.raises(SourceError, match=f"start the stream with --gone-topic {re.escape(names[0])}$"):
        topic.drain(**pattern)
    topic.broker.produce(names[1], messages(records[3]))
    for _ in range(2):
        topic.drain(**pattern, gone_topics=(names[0],))
        assert len(topic.flights()) == 160
    progress = progress_of(topic.lake, FLIGHTS.name)
    assert progress is not None
    assert not any(name.startswith(f"{names[0]}-") for name in progress.partitions)

    topic.broker.delete(names[1])
    topic.broker.create(names[1], PARTITIONS)
    with pytest.raises(SourceError, match="was deleted and made again") as refused:
        topic.drain(**pattern)
    topic.broker.produce(names[1], messages(flights(20, seed=9)))
    topic.drain(**pattern, new_topic=str(refused.value).rpartition(" ")[2])
    assert len(topic.flights()) == 180
    assert audit(topic.lake, HOURLY).ok


def test_X2_a_new_log_begins_where_its_start_says_though_it_dies_before_its_first_epoch(topic: Topic) -> None:
    before, after = flights(30, seed=20), flights(60, seed=21)
    topic.produce(messages(before))
    start = Start.of("latest")
    # It begins, and dies before an epoch: what comes now is after its start, whenever it is read.
    Stream(topic.spark, topic.lake, [HOURLY], replace(Kafka(topic.name, topic.broker.bootstrap), start=start)).close()
    began = json.loads(topic.lake.head(FLIGHTS.name).properties[BEGAN])
    assert (began["start"], sum(began["offsets"][topic.name].values())) == ("latest", 30)
    topic.produce(messages(after))
    topic.broker.grow(topic.name, PARTITIONS + 1)
    topic.produce([(PARTITIONS, value) for _, value in messages(flights(10, seed=22))])
    for later in (start, None, Start.of("2031-01-01T00:00:00Z")):
        topic.drain(per_epoch=40, start=later)
        assert topic.answers() == batch([*after, *flights(10, seed=22)])
    assert json.loads(topic.lake.head(FLIGHTS.name).properties[BEGAN]) == began
    assert audit(topic.lake, HOURLY).ok
    assert topic.drain() == []


@pytest.mark.parametrize("by", ["time", "offsets"])
def test_a_start_is_an_arrival_time_or_offsets(topic: Topic, by: str) -> None:
    topic.produce(messages(flights(30, seed=30)))
    time.sleep(0.01)
    now = datetime.now(UTC).isoformat()
    time.sleep(0.01)
    topic.produce(messages(flights(60, seed=31)))
    if by == "time":
        topic.drain(start=Start.of(now))
        assert topic.answers() == batch(flights(60, seed=31))
    else:
        for wrong, said in (({topic.name: {"0": 31}}, "partition 0 .* has the offsets 0 to 30, not 31"),
                            ({"another": {"7": 1}}, "another has no partition 7")):  # fmt: skip
            with pytest.raises(SourceError, match=said):
                topic.drain(start=Start.of(json.dumps(wrong)))
        topic.drain(start=Start.of(json.dumps({topic.name: {"0": 10, "1": 30}})))
        assert len(topic.flights()) == 20 + 30
        assert topic.spark.table("flights").where(f"_source = '{topic.name}-1'").count() == 0


def test_T3_a_partition_read_slowly_or_not_at_all_holds_the_watermark_back(topic: Topic) -> None:
    def drained() -> Progress:
        topic.drain()
        progress = progress_of(topic.lake, FLIGHTS.name)
        assert progress is not None
        return progress

    def at(hour: int) -> bytes:
        scheduled = f"2013-01-01T{hour:02}:00:00Z"
        return json.dumps({"flight": f"{hour}", "origin": "EWR", "scheduled": scheduled, "delay": 0}).encode()

    half = duration(minutes(30))
    topic.produce([(0, at(10)), (1, at(20))])
    progress = drained()
    assert (progress.watermark, progress.behind) == (BEGINNING, (f"{topic.name}-2",))
    topic.produce([(2, at(15))])
    progress = drained()
    assert (progress.watermark, progress.behind) == (instant_at(10) - half, (f"{topic.name}-0",))
    topic.produce([(0, at(18)), (2, at(12))])
    assert drained().watermark == instant_at(15) - half
    # Of partition 2 nothing was late, though partition 1 is hours ahead of it.
    assert topic.spark.sql("SELECT COUNT(*) FROM hourly__ledger WHERE kind = 'late'").collect()[0][0] == 0
    assert audit(topic.lake, HOURLY).ok


def instant_at(hour: int) -> int:
    return instant(datetime(2013, 1, 1, hour, tzinfo=UTC))


def test_a_topic_that_is_not_there_stops_the_stream(broker: Broker, spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(StreamError, match="Kafka topic nowhere"):
        Topic(broker, "nowhere", spark, Lake(settings)).drain()


CHECKED = Log(
    name="checked", columns={"flight": "string", "at": "timestamp"}, event_time="at", disorder=minutes(30)
)  # fmt: skip
GATES = Log(name="gates", columns={"gate": "string", "at": "timestamp"}, event_time="at", disorder=minutes(30))
TRAFFIC = Union(name="traffic", of=(CHECKED, FLIGHTS, GATES))
BUSY = Pipeline(
    name="busy", log=TRAFFIC, key="log", what={"records": Count()}, where=Fixed(hours(1)),
    when=Repeat(AfterCount(1)), allowed_lateness=days(365),
)  # fmt: skip


def test_X2_two_topics_and_a_folder_are_one_cut_whose_records_are_all_in_their_logs_once(
    topic: Topic, tmp_path: Path
) -> None:
    second, folder = f"{topic.name}_2", tmp_path / "gates"
    topic.broker.create(second, 2)
    folder.mkdir()
    sources: dict[str, Source] = {
        "flights": Kafka(topic.name, topic.broker.bootstrap, 40),
        "checked": Kafka(second, topic.broker.bootstrap, 30),
        "gates": Files(str(folder), "json", 1),
    }
    made = flights(120, 7)
    topic.produce([(place % PARTITIONS, json.dumps(one).encode()) for place, one in enumerate(made)])
    checked = [{"flight": one["flight"], "at": one["scheduled"]} for one in made]
    # One record is of another log: it is kept with its bytes, and holds nothing up.
    astray = json.dumps({"gate": "B7", "at": made[0]["scheduled"]}).encode()
    messages = [(place % 2, json.dumps(one).encode()) for place, one in enumerate(checked)]
    topic.broker.produce(second, [*messages, (0, astray)])
    for number, one in enumerate(made[:3]):
        (folder / f"{number}.json").write_text(json.dumps({"gate": "A1", "at": one["scheduled"]}) + "\n")
    for _ in range(2):
        stream = Stream(topic.spark, topic.lake, [BUSY], sources)
        stream.start(once=True)
        stream.wait()
        stream.close()
        topic.broker.produce(second, messages[:10])
    lake = topic.lake
    assert [lake.table(name).scan().count() for name in ("flights", "checked", "gates")] == [120, 130, 3]
    (rejected,) = lake.table("checked__rejected").scan().to_arrow().to_pylist()
    assert rejected["raw"] == astray
    rows = lake.table("busy").scan().to_arrow().to_pylist()
    counts = Counter[str]()
    for one in rows:
        counts[one["log"]] += one["records"]
    assert counts == {"flights": 120, "checked": 130, "gates": 3}
    found = audit(lake, BUSY)
    assert found.ok, [check for check in found.checks if not check.ok]


@pytest.mark.parametrize("after", [0, 3, 5, 9])
def test_a_topic_that_was_made_again_is_refused_until_it_is_named_and_then_read_from_its_beginning(
    topic: Topic, after: int
) -> None:
    def messages(count: int, seed: int) -> list[Message]:
        return [(number % PARTITIONS, json.dumps(one).encode()) for number, one in enumerate(flights(count, seed))]

    topic.produce(messages(5, seed=1))
    topic.drain()
    before = topic.flights()
    running = Stream(topic.spark, topic.lake, [HOURLY], Kafka(topic.name, topic.broker.bootstrap))
    topic.broker.delete(topic.name)
    topic.broker.create(topic.name, PARTITIONS)
    topic.produce(messages(after, seed=2))
    if after > 5:
        # Each partition has more than was read of it, so Spark itself sees nothing amiss.
        running.start(once=True)
        with pytest.raises(SourceError, match="was deleted and made again"):
            running.wait()
    running.close()
    assert topic.flights() == before
    with pytest.raises(SourceError, match="start the stream with --new-topic ") as refused:
        topic.drain()
    id = str(refused.value).rpartition(" ")[2]
    with pytest.raises(SourceError, match="was deleted and made again"):
        topic.drain(new_topic="another")
    topic.drain(new_topic=id)
    assert len(topic.flights()) == 5 + after
    assert topic.drain(new_topic=id) == topic.drain() == []
    topic.produce(messages(2, seed=3))
    topic.drain()
    assert len(topic.flights()) == 5 + after + 2
    assert audit(topic.lake, HOURLY).ok


def test_X2_a_log_goes_on_with_the_source_that_it_was_begun_with(topic: Topic, tmp_path: Path) -> None:
    """Offsets of one source would be taken for those of another: files for a topic, a topic for another one."""

    def refused(lake: Lake, source: Source, words: str) -> None:
        before = lake.table("flights").current_snapshot()
        with pytest.raises(SourceError, match=words):
            Stream(topic.spark, lake, [HOURLY], source)
        assert lake.table("flights").current_snapshot() == before

    other = f"{topic.name}_other"
    topic.broker.create(other, 1)
    topic.produce(messages(flights(5, seed=1)))
    topic.drain()
    (tmp_path / "0.json").write_text("".join(json.dumps(one) + "\n" for one in flights(5, seed=1)))
    began = f"was read from Kafka topic {topic.name} so far, and this stream has "
    refused(topic.lake, Kafka(other, topic.broker.bootstrap), f"{began}Kafka topic {other} for it")
    refused(topic.lake, Files(str(tmp_path)), f"{began}json files in {tmp_path} for it")

    of_files = Lake(topic.lake.settings.model_copy(update={"namespace": "of_files"}))
    stream = Stream(topic.spark, of_files, [HOURLY], Files(str(tmp_path)))
    stream.start(once=True)
    stream.wait()
    stream.close()
    refused(
        of_files,
        Kafka(other, topic.broker.bootstrap),
        f"read from files so far, and this stream has Kafka topic {other}",
    )
