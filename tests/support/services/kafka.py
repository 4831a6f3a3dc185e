"""A real Kafka broker for tests: one KRaft node from the pinned jars, on loopback, gone with what started it.

Fixture `broker` starts it once for all tests of a process; `pytest_plugins = ["tests.support.services.kafka"]` gives it
to a module.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tailrace.ingest.kafka_access import jaas
from tailrace.settings import Settings
from tailrace.toolchain import class_path, require_java
from tests.support.services.kafka_identities import AUDIENCE, PASSWORD, USER, Identities

READY_SECONDS = 120
JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Kafka is killed when the pipe from the tests closes, however they end: its data is of no use to anyone after.
GUARD = 'exec 3<&0; "$@" </dev/null & kafka=$!; (read _ <&3; kill -9 $kafka 2>/dev/null) & wait $kafka'


@dataclass(frozen=True)
class Broker:
    """A running broker. Topics are made before they are used."""

    bootstrap: str
    identities: Identities
    sasl: str
    """Where clients with SASL connect, over TLS."""
    sasl_plain: str
    """Where clients with SASL connect, without TLS."""
    mutual: str
    """Where clients connect that have a certificate."""

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic."""
        self._done(self.admin.create_topics([NewTopic(topic, partitions, 1)]))
        self._led(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._done(self.admin.delete_topics([topic]))
        while topic in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions."""
        self._done(self.admin.create_partitions([NewPartitions(topic, partitions)]))
        self._led(topic, partitions)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Lose the records of a partition before an offset."""
        self._done(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def produce(self, topic: str, records: Iterable[tuple[int, bytes | None]], **config: Any) -> None:
        """Produce records, each to its partition, in order, and wait until the broker has them all."""
        failed: list[KafkaError] = []
        producer = self.producer(**config)
        for partition, value in records:
            while True:
                try:
                    producer.produce(
                        topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None
                    )
                    break
                except BufferError:
                    producer.poll(1)
        left = producer.flush(60)
        if failed or left:
            raise AssertionError(f"{left} records not delivered, {len(failed)} failed: {failed[:1]}")

    def producer(self, **config: Any) -> Producer:
        """A producer, for what `produce` does not do."""
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, **_QUIET, **config})

    @cached_property
    def admin(self) -> AdminClient:
        """A client that administers it."""
        return AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})

    def enrol(self, user: str, password: str) -> None:
        """Give a user a password for SCRAM."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        self._done(self.admin.alter_user_scram_credentials([change]))

    def _done(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=60)

    def _led(self, topic: str, partitions: int) -> None:
        """Wait until each partition has a leader: before that, producers and readers are turned away."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
            if len(found) == partitions and all(one.leader >= 0 for one in found):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic}: {len(found)} of {partitions} partitions are led")
            time.sleep(0.05)


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker with its data in `folder`. Raises ToolchainError where Java or its jars are missing."""
    settings = Settings()
    jars = class_path(settings.jars, ["kafka-broker"])
    java = [str(require_java(settings.java_home).command), *JVM, "-cp", os.pathsep.join(map(str, jars))]
    folder.mkdir(parents=True, exist_ok=True)
    port, controller, sasl, sasl_plain, mutual = _free_ports(5)
    identities = Identities(folder / "identities")
    identities.make()
    jwks = (identities.folder / "jwks.json").as_uri()
    java[1:1] = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"]
    properties = folder / "kraft.properties"
    listeners = {"PLAINTEXT": port, "CONTROLLER": controller, "SASL": sasl, "SASLPLAIN": sasl_plain, "MUTUAL": mutual}
    places = {name: f"{name}://127.0.0.1:{number}" for name, number in listeners.items()}
    login = jaas("org.apache.kafka.common.security.plain.PlainLoginModule", {f"user_{USER}": PASSWORD})
    values = {
        "controller": controller, "folder": folder, "listeners": ",".join(places.values()), "jwks": jwks,
        "advertised": ",".join(place for name, place in places.items() if name != "CONTROLLER"),
        "audience": AUDIENCE, "oauth": "org.apache.kafka.common.security.oauthbearer",
        "plain": login.replace("\\", "\\\\"),
    }  # fmt: skip
    properties.write_text(PROPERTIES.format(**values))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatted = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if formatted.returncode:
        raise RuntimeError(f"Kafka's storage could not be formatted:\n{formatted.stdout}")
    with ExitStack() as stack:
        said = stack.enter_context((folder / "broker.log").open("wb+"))
        process = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", *java, "kafka.Kafka", str(properties)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(_stop, process)
        at = (f"127.0.0.1:{number}" for number in (sasl, sasl_plain, mutual))
        broker = Broker(f"127.0.0.1:{port}", identities, *at)
        _wait(process, broker, folder / "broker.log")
        yield broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all tests of the process, 5 seconds of it; each makes topics of its own."""
    with running(tmp_path_factory.mktemp("kafka")) as one:
        yield one


def _wait(process: subprocess.Popen[bytes], broker: Broker, log: Path) -> None:
    """Wait until it answers. Raises RuntimeError, with what it said, if it ends before or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if broker.admin.list_topics(timeout=1).brokers:
                return
        except KafkaException:
            continue
    raise RuntimeError(f"the broker did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


# A client that finds no broker says so twice a second; `_wait` asks until there is one.
_QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None, "topic.metadata.refresh.interval.ms": 1000}

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,SASLPLAIN:SASL_PLAINTEXT,MUTUAL:SSL
inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={folder}/identities/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/identities/ca.pem
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.saslplain.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config={plain}
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.saslplain.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;
listener.name.sasl.oauthbearer.sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler
listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={jwks}
listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience={audience}
listener.name.sasl.oauthbearer.connections.max.reauth.ms=60000
log.dirs={folder}/data
auto.create.topics.enable=false
log.retention.ms=-1
num.network.threads=1
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
