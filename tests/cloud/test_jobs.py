"""What a job run is told: where its driver prints to, and how it signs in to brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from tailrace.aws.emr import Application, EmrServerless
from tailrace.aws.objects import AwsError
from tailrace.cli.runtime.cluster_entry import MOST, run_submitted
from tailrace.ingest.kafka_access import KafkaAccess
from tailrace.ingest.sources import Kafka
from tailrace.runners.jobs import StreamJob
from tailrace.runners.submit import last_object
from tailrace.settings import Settings
from tests.support.services.aws import ACCOUNT, Aws, aws

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
ROLE = f"arn:aws:iam::{ACCOUNT}:role/tailrace-dev-stream"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    with aws() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_driver_prints_to_the_log_group_that_is_named(cloud: Aws) -> None:
    emr = cloud.client("emr-serverless")
    made = emr.create_application(name="a", type="SPARK", releaseLabel="emr-spark-8.1.0")["applicationId"]
    # moto knows of an application without job runs by none of them.
    emr.start_job_run(applicationId=made, executionRoleArn=ROLE, jobDriver={"sparkSubmit": {"entryPoint": "s3://a/b"}})
    cloud.client("s3").create_bucket(Bucket="runs", CreateBucketConfiguration={"LocationConstraint": cloud.region})
    runner = EmrServerless(Application(made, ROLE, "s3://runs/tailrace", log_group="/tailrace-dev/stream"))
    run = runner.stream(
        StreamJob(definitions=("/dags/flights.py",), topic="flights", bootstrap="b:9092"), lambda _: None
    ).run
    told = emr.get_job_run(applicationId=made, jobRunId=run)["jobRun"]["configurationOverrides"]
    assert told["monitoringConfiguration"] == {
        "s3MonitoringConfiguration": {"logUri": "s3://runs/tailrace/logs/"},
        "cloudWatchLoggingConfiguration": {
            "enabled": True,
            "logGroupName": "/tailrace-dev/stream",
            "logTypes": {"SPARK_DRIVER": ["STDERR", "STDOUT"]},
        },
    }


def test_without_a_log_group_there_is_s3_alone() -> None:
    assert [*Application("a", ROLE, "s3://a/tailrace").monitoring] == ["s3MonitoringConfiguration"]
    with pytest.raises(AwsError, match="log_group 'a b': expected the name of a log group"):
        Application("a", ROLE, "s3://a/tailrace", log_group="a b")


class Reader:
    """A reader of streams that keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    @property
    def readStream(self) -> Reader:
        return self

    def format(self, _: str) -> Reader:
        return self

    def option(self, name: str, value: Any) -> Reader:
        self.told[name] = value
        return self

    def options(self, **values: Any) -> Reader:
        self.told |= values
        return self

    def load(self) -> Reader:
        return self

    def selectExpr(self, *_: str) -> Reader:
        return self


@pytest.mark.parametrize("security", ["plaintext", "tls", "iam"])
def test_brokers_are_talked_to_as_the_setting_says(security: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_KAFKA_SECURITY", security)
    reader: Any = Reader()
    Kafka("flights", "b:9098", access=KafkaAccess.of(Settings())).stream(reader)
    own = {"kafka.bootstrap.servers", "subscribe", "startingOffsets", "kafka.isolation.level", "failOnDataLoss"}
    told = {name: value for name, value in reader.told.items() if name not in own}
    protocols = {"plaintext": "PLAINTEXT", "tls": "SSL", "iam": "SASL_SSL"}
    assert told.pop("kafka.security.protocol") == protocols[security]
    assert bool(told) == (security == "iam")
    assert told.get("kafka.sasl.mechanism", "AWS_MSK_IAM") == "AWS_MSK_IAM"


def test_the_dags_of_the_page_parse_beside_a_runner(tmp_path: Path) -> None:
    pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cloud.md").read_text(), re.DOTALL)
    dags = tmp_path / "folder"
    for name in ("dags", "pipelines"):
        (dags / name).mkdir(parents=True)
    copy(ROOT / "pipelines" / "flights.py", dags / "pipelines")
    told = {"id": "a1", "role": ROLE, "place": "s3://runs/tailrace", "definitions": ".", "log_group": "/tailrace/a"}
    more = {"environment": {"TAILRACE_NAMESPACE": "tailrace_dev"}, "conf": {"spark.executor.cores": "4"}}
    (dags / "runner.json").write_text(json.dumps({name: {**told, **more} for name in ("stream", "backfill")}))
    shown = "print(streams().application.log_group, os.environ['TAILRACE_NAMESPACE'])"
    (dags / "dags" / "flights.py").write_text(f"{block}\n{shown}\n")
    env = {"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "spark")}
    done = subprocess.run(
        [sys.executable, dags / "dags" / "flights.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "/tailrace/a tailrace_dev"


def test_of_a_run_that_says_much_the_last_is_left(cloud: Aws) -> None:
    cloud.client("s3").create_bucket(Bucket="runs", CreateBucketConfiguration={"LocationConstraint": cloud.region})

    def command(args: Any, *, prog_name: str) -> None:
        for n in range(5 * MOST // 100):
            print(f"{n:099}")
        print(json.dumps({"changed": 1}, indent=2))

    with pytest.raises(SystemExit) as ended:
        run_submitted(command, "stream", ["--outcome=s3://runs/outcomes/a"])
    assert ended.value.code == 0
    found = json.loads(cloud.client("s3").get_object(Bucket="runs", Key="outcomes/a")["Body"].read())
    assert (found["status"], found["err"], len(found["out"])) == (0, "", MOST)
    assert last_object(found["out"]) == {"changed": 1}
    assert found["out"].splitlines()[-4] == f"{5 * MOST // 100 - 1:099}"
