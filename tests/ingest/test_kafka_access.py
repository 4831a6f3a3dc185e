"""Topics of a broker that asks who comes: each way in reads them, and no secret is shown anywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tries
from hypothesis import strategies as some
from pyspark.sql import SparkSession

from tailrace.doctor.findings import WrongError
from tailrace.doctor.machine_checks import check_brokers
from tailrace.infer.sample import SampleError
from tailrace.infer.topics import read_topic
from tailrace.ingest.kafka_access import KafkaAccess, jaas
from tailrace.ingest.sources import Kafka
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import hours
from tailrace.model.combiners.basic import Count
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.windows.windows import Fixed
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.stream.log_sources import unreachable
from tests.support.services.kafka_identities import CLIENT, CLIENT_SECRET, PASSWORD, USER

if TYPE_CHECKING:
    from tests.support.services.kafka import Broker

pytest_plugins = ["tests.support.services.kafka"]
pytestmark = pytest.mark.kafka

WAYS = ("plain", "scram-sha-512", "oauthbearer", "tls", "scram without tls")
VISITS = Log(name="guarded_visits", columns={"at": "timestamp", "page": "string"}, event_time="at")
PAGES = Pipeline(name="guarded_pages", log=VISITS, key="page", what={"visits": Count()}, where=Fixed(hours(1)))


@pytest.fixture(scope="module")
def token_server(broker: Broker) -> Iterator[str]:
    with broker.identities.token_server() as place:
        yield place


def settings_for(way: str, broker: Broker, token_server: str, base: Settings, password: str = "") -> Settings:
    """The settings of a way in; with another password, of one that is turned away."""
    folder = broker.identities.folder
    told: dict[str, object] = {"kafka_security": way, "kafka_bootstrap": broker.sasl, "kafka_ca": folder / "ca.pem"}
    match way:
        case "tls":
            key = {} if password else {"kafka_certificate": folder / "client.pem", "kafka_key": folder / "client.key"}
            told |= {"kafka_bootstrap": broker.mutual, **key}
        case "oauthbearer":
            told |= {"kafka_credential": f"{CLIENT}:{password or CLIENT_SECRET}", "kafka_token_uri": token_server}
        case "scram without tls":
            told = {"kafka_security": "scram-sha-512", "kafka_bootstrap": broker.sasl_plain, "kafka_tls": False}
            told |= {"kafka_credential": f"{USER}:{password or PASSWORD}"}
        case _:
            told |= {"kafka_credential": f"{USER}:{password or PASSWORD}"}
    own = {name: getattr(base, name) for name in ("warehouse", "jars", "contracts", "catalog", "namespace")}
    return Settings(**own, **told)


def test_each_way_in_reads_a_topic_and_shows_no_secret(
    broker: Broker, token_server: str, spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    # At this level, Py4J logs each call to Java, whatever it contains.
    caplog.set_level(logging.INFO, "py4j")
    broker.enrol(USER, PASSWORD)
    broker.create("guarded")
    lake, shown, secrets = Lake(settings), list[str](), set[str]()
    for number, way in enumerate(WAYS):
        told = settings_for(way, broker, token_server, settings)
        access = KafkaAccess.of(told)
        secrets |= set(access.secrets)
        place = told.kafka_bootstrap or ""
        broker.produce("guarded", [(0, json.dumps({"at": "2026-01-01T00:00:00Z", "page": way}).encode())])
        shown += [repr(access), repr(told), str(told), check_brokers(told)]
        assert read_topic("guarded", place, access, 10).records
        source = Kafka("guarded", place, access=access)
        shown += [repr(source), str(source)]
        stream = Stream(spark, lake, [PAGES], source)
        try:
            stream.start(once=True)
            stream.wait()
            assert stream.query is not None
            shown.append(stream.query._jsq.explainInternal(True))
            shown.append(str(stream.query.lastProgress))
        finally:
            stream.close()
        assert spark.table(VISITS.name).count() == number + 1
        wrong = settings_for(way, broker, token_server, settings, "wrong-31c9")
        refused = KafkaAccess.of(wrong)
        secrets |= set(refused.secrets)
        said = unreachable(spark, Kafka("guarded", place, access=refused))
        assert said is not None
        shown.append(said)
        with pytest.raises(WrongError) as caught:
            check_brokers(wrong)
        with pytest.raises(SampleError) as unread:
            read_topic("guarded", place, refused, 10)
        shown += [str(caught.value), str(unread.value)]
    rows = [row[0] for table in lake.tables for row in spark.table(table).selectExpr("TO_JSON(STRUCT(*))").collect()]
    assert rows
    shown += [*rows, str(spark.sparkContext.getConf().getAll()), caplog.text, *capfd.readouterr()]
    for file in Path(settings.warehouse).rglob("*"):
        if file.is_file():
            shown.append(file.read_bytes().decode("latin-1"))
    everything = "\n".join(shown)
    for secret in secrets:
        for form in (secret, json.dumps(secret)[1:-1], secret.splitlines()[-2] if "\n" in secret else secret):
            assert form not in everything


@tries(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=some.dictionaries(some.from_regex("[a-z]{1,5}", fullmatch=True), some.text(some.characters(codec="utf-8")))
)
def test_java_reads_each_value_of_a_jaas_text_as_it_was(spark: SparkSession, values: dict[str, str]) -> None:
    jvm: Any = spark._jvm
    text = jvm.org.apache.kafka.common.config.types.Password(jaas("a.Module", values))
    context = jvm.org.apache.kafka.common.security.JaasContext
    read = context.loadClientContext({"sasl.jaas.config": text}).configurationEntries().get(0).getOptions()
    assert dict(read) == values
