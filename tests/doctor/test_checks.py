"""`tailrace doctor` on a lake in S3 and Glue, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy import update
from sqlalchemy.orm import Session
from typer.testing import CliRunner
from werkzeug.serving import WSGIRequestHandler

from tailrace.cli.main import app
from tailrace.doctor import lake_checks, machine_checks
from tailrace.doctor.findings import WrongError
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.support.services.aws import ACCOUNT, REGION, aws
from tests.support.services.catalogs import Servers

BUCKET = "lake-of-a-test"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, *, by_version: bool = True) -> Iterator[str]:
    """A server with a bucket and a database, for who asks boto3 in this process."""
    with aws(by_version=by_version) as cloud:
        told = {"TAILRACE_WAREHOUSE": f"s3://{BUCKET}/lake", "TAILRACE_CATALOG_URI": f"glue://{ACCOUNT}"}
        for name, value in (cloud.environment | told).items():
            monkeypatch.setenv(name, value)
        # It remembers whose credentials it found first.
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        monkeypatch.setattr(machine_checks, "missing_jars", lambda folder, groups: [])
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        boto3.client("glue").create_database(DatabaseInput={"Name": "main"})
        yield cloud.url


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that does as AWS does."""
    with served(monkeypatch) as url:
        yield url


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One that does not look at the VersionId that a change of a table brings."""
    with served(monkeypatch, by_version=False) as url:
        yield url


@pytest.mark.parametrize("catalog", ["sqlite", "postgres", "rest"])
def test_a_catalog_that_compares_what_it_swaps_refuses_a_commit_that_was_overtaken(
    catalog: str, settings: Settings, tmp_path: Path
) -> None:
    with Servers(tmp_path) as servers:
        told, _ = servers.lake(catalog, settings)
        with closing(Lake(told).catalog):
            assert (
                lake_checks.check_swap(told, lake_checks.remove_folder)
                == "a commit that was overtaken by another is refused"
            )
        assert Lake(told).tables == []


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_a_catalog_that_takes_a_commit_that_was_overtaken_is_found_out(
    catalog: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(self: SqlCatalog, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        loaded = self.load_table(table.name())
        staged = self._update_and_stage_table(loaded, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        with Session(self.engine) as session:
            mine = IcebergTables.table_name == table.name()[-1]
            session.execute(update(IcebergTables).where(mine).values(metadata_location=staged.metadata_location))
            session.commit()
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    monkeypatch.setattr(SqlCatalog, "commit_table", careless)
    with Servers(tmp_path) as servers:
        told, _ = servers.lake(catalog, settings)
        with closing(Lake(told).catalog), pytest.raises(WrongError, match="loses the other in silence"):
            lake_checks.check_swap(told, lake_checks.remove_folder)
        assert Lake(told).tables == []


def run(*words: str) -> dict[str, Any]:
    """Each check's finding, by its name."""
    result = CliRunner().invoke(app, ["doctor", "--json", *words])
    assert "Traceback" not in result.output
    told = json.loads(result.stdout)
    assert result.exit_code == (1 if told["wrong"] else 0), result.output
    return {one["name"]: one for one in told["checks"]}


def objects() -> list[str]:
    return [one["Key"] for one in boto3.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def tables() -> list[str]:
    return [one["Name"] for one in boto3.client("glue").get_tables(DatabaseName="main")["TableList"]]


def may(actions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Become somebody who may do this and nothing else."""
    iam = boto3.client("iam")
    iam.create_user(UserName="somebody")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}
    iam.put_user_policy(UserName="somebody", PolicyName="some", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName="somebody")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)


@pytest.mark.usefixtures("cloud")
def test_a_lake_in_glue_and_s3_with_nothing_wrong() -> None:
    told = run()
    assert {name: one["found"] for name, one in told.items() if one["state"] == "wrong"} == {}
    looked_at = {name for name, one in told.items() if one["state"] == "ok"}
    assert looked_at >= {
        "credentials", "clock", "warehouse", "objects", "conditional writes", "bucket settings", "glue", "catalog",
        "commits",
    }  # fmt: skip
    assert told["credentials"]["found"].endswith(f", account {ACCOUNT}")
    assert told["warehouse"]["found"] == f"bucket {BUCKET} is there, in {REGION}"
    assert told["bucket settings"]["found"] == "versioning off, public access not blocked by the bucket itself"
    assert told["commits"]["found"] == "a commit that was overtaken by another is refused"
    assert (objects(), tables()) == ([], []), "it leaves nothing behind"


@pytest.mark.usefixtures("careless")
def test_a_server_that_only_looks_like_glue_is_found_out() -> None:
    told = run()
    assert {name for name, one in told.items() if one["state"] == "wrong"} == {"commits"}
    assert "takes a commit that another has overtaken, and loses the other in silence" in told["commits"]["found"]
    assert "VersionId" in told["commits"]["found"]
    assert "two writers lose records and answers" in told["commits"]["mend"]
    assert (objects(), tables()) == ([], []), "it leaves nothing behind"


@pytest.mark.usefixtures("cloud")
def test_credentials_that_are_none_are_said_and_nothing_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
    told = run()
    assert told["credentials"]["state"] == "wrong"
    assert "InvalidClientTokenId" in told["credentials"]["found"]
    assert told["credentials"]["mend"].startswith("set AWS_PROFILE, or AWS_ACCESS_KEY_ID")
    for name in ("warehouse", "glue", "catalog", "commits"):
        assert told[name]["found"] == "something has to be right first: credentials"


@pytest.mark.usefixtures("cloud")
def test_no_credentials_at_all_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    told = run()["credentials"]
    assert (told["state"], told["found"]) == ("wrong", "there are no credentials of AWS")


def test_a_store_of_ones_own_is_looked_at_without_an_sts(
    cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", cloud)
    monkeypatch.setenv("TAILRACE_CATALOG_URI", f"sqlite:///{tmp_path}/catalog.db")
    with closing(Lake(Settings()).catalog):
        told = run()
    assert told["credentials"]["state"] == "not looked at"
    assert "the store is one of your own" in told["credentials"]["found"]
    assert {name for name, one in told.items() if one["state"] == "wrong"} == set()
    assert {told[name]["state"] for name in ("warehouse", "objects", "conditional writes", "commits")} == {"ok"}


@pytest.mark.usefixtures("cloud")
def test_a_lake_on_this_machine_is_looked_at_whatever_the_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path / "lake"))
    monkeypatch.delenv("TAILRACE_CATALOG_URI")
    with closing(Lake(Settings()).catalog):
        pass
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
    told = run("--application", "00none")
    assert told["credentials"]["state"] == "wrong"
    assert told["application"]["found"] == "something has to be right first: credentials"
    assert told["commits"]["state"] == "ok"


@pytest.mark.usefixtures("cloud")
def test_credentials_of_another_account_than_the_catalogs_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "glue://210987654321")
    told = run()["credentials"]
    assert told["state"] == "ok", "a catalog may be shared"
    assert told["found"].endswith(f", account {ACCOUNT}; the catalog is of account 210987654321")


@pytest.mark.usefixtures("cloud")
def test_a_bucket_that_is_not_there_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", "s3://no-such-bucket/lake")
    told = run()
    assert told["warehouse"]["found"] == "there is no bucket no-such-bucket"
    assert told["objects"]["found"] == told["commits"]["found"] == "something has to be right first: warehouse"


@pytest.mark.usefixtures("cloud")
def test_a_bucket_in_another_region_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"LocationConstraint": "eu-west-3"}
    paris = boto3.client("s3", region_name="eu-west-3")
    paris.create_bucket(Bucket="one-in-paris", CreateBucketConfiguration=where)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", "s3://one-in-paris")
    told = run()["warehouse"]
    assert told["found"] == f"bucket one-in-paris is in eu-west-3, and clients are set to {REGION}"
    assert told["mend"].startswith("set AWS_REGION and AWS_DEFAULT_REGION to eu-west-3")


@pytest.mark.usefixtures("cloud")
def test_who_may_only_read_is_told_which_actions_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    # AWS asks for s3:ListBucket where moto asks for one that there is not.
    may(["s3:Get*", "s3:ListBucket", "s3:HeadBucket", "glue:Get*"], monkeypatch)
    told = run()
    assert {told[name]["state"] for name in ("credentials", "warehouse", "glue")} == {"ok"}
    assert told["objects"]["state"] == "wrong"
    assert told["objects"]["mend"].startswith("allow s3:PutObject")
    assert told["commits"]["found"] == "something has to be right first: objects"


@pytest.mark.usefixtures("cloud")
def test_who_may_not_make_tables_is_told_which_action_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    may(["s3:*", "glue:Get*"], monkeypatch)
    told = run()
    assert told["objects"]["state"] == "ok"
    assert told["commits"]["state"] == "wrong"
    assert told["commits"]["mend"].startswith("allow glue:CreateTable")


@pytest.mark.usefixtures("cloud")
def test_who_may_not_ask_glue_is_told_which_action_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    may(["s3:*"], monkeypatch)
    told = run()
    assert told["glue"]["mend"].startswith("allow glue:GetDatabase")
    assert told["catalog"]["state"] == "wrong"


@pytest.mark.parametrize(("seconds", "said"), [(90, "90 s behind; from 300 s on"), (-900, "900 s ahead; AWS refuses")])
@pytest.mark.usefixtures("cloud")
def test_a_clock_that_is_off_is_said(seconds: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = lambda *_: format_datetime(datetime.now(UTC) + timedelta(seconds=seconds + 0.4), usegmt=True)  # noqa: E731
    monkeypatch.setattr(WSGIRequestHandler, "date_time_string", shifted)
    told = run()["clock"]
    assert told["state"] == "wrong"
    words = told["found"].split(" ")
    assert abs(float(words[4]) - abs(seconds)) <= 2
    assert " ".join(words[5:]).startswith(said.split(" ", 1)[1])


@pytest.mark.usefixtures("cloud")
def test_before_the_database_is_there_glue_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_NAMESPACE", "none_yet")
    told = run()
    assert told["glue"]["found"] == "there is no database none_yet yet"
    assert told["catalog"]["state"] == told["commits"]["state"] == "not looked at"


@pytest.mark.usefixtures("cloud")
def test_an_application_and_its_role_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(tmp_path))
    monkeypatch.delenv("TAILRACE_CATALOG_URI")
    emr, iam = boto3.client("emr-serverless"), boto3.client("iam")
    made = emr.create_application(name="lake", releaseLabel="emr-7.12.0", type="SPARK")["applicationId"]
    roles = {}
    for name, service in (("job", "emr-serverless"), ("other", "ec2")):
        trusts = {"Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}, "Action": "sts:AssumeRole"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [trusts]})
        roles[name] = iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    told = run("--application", made, "--role", roles["job"])
    assert told["application"]["found"] == "lake, emr-7.12.0, created"
    assert told["job role"]["state"] == "ok"
    assert told["java"]["state"] == told["jars"]["state"] == "not looked at"
    told = run("--application", "00none", "--role", roles["other"])
    assert "no EMR Serverless application 00none" in told["application"]["found"]
    assert "emr-serverless.amazonaws.com do sts:AssumeRole" in told["job role"]["mend"]
    assert run("--application", made)["job role"]["mend"] == "give it as --role ARN"
    assert "there is no role" in run("--application", made, "--role", roles["job"] + "s")["job role"]["found"]
    emr.stop_application(applicationId=made)
    emr.delete_application(applicationId=made)
    assert run("--application", made)["application"]["state"] == "wrong"


def test_a_service_that_does_not_answer_is_said(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    told = run()
    assert told["credentials"]["found"].startswith("sts does not answer (")
    assert told["clock"]["state"] == "not looked at"
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud)
