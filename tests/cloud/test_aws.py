"""The AWS of the tests does what AWS does, where stock moto does not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.services.aws import Aws, aws

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cloud() -> Iterator[Aws]:
    with aws() as made:
        yield made


@pytest.fixture
def glue(cloud: Aws) -> Iterator[Any]:
    client = cloud.client("glue")
    client.create_database(DatabaseInput={"Name": "main"})
    client.create_table(DatabaseName="main", TableInput={"Name": "rides", "Parameters": {"n": "0"}})
    yield client
    client.delete_table(DatabaseName="main", Name="rides")
    client.delete_database(Name="main")


def commit(glue: Any, n: int, version: str | None) -> str:
    """Commit a number as of a version; the error's code, or nothing."""
    asked = {} if version is None else {"VersionId": version}
    try:
        glue.update_table(DatabaseName="main", TableInput={"Name": "rides", "Parameters": {"n": str(n)}}, **asked)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def at(glue: Any) -> tuple[str, int]:
    table = glue.get_table(DatabaseName="main", Name="rides")["Table"]
    return table["VersionId"], int(table["Parameters"]["n"])


def test_a_commit_to_an_old_version_of_a_table_is_refused(glue: Any) -> None:
    version, n = at(glue)
    assert commit(glue, n + 1, version) == ""
    assert commit(glue, n + 2, version) == "ConcurrentModificationException"
    assert at(glue)[1] == n + 1
    # Who names no version does not ask for the check.
    assert commit(glue, n + 3, None) == ""


def test_commits_at_once_are_all_there_or_refused(glue: Any) -> None:
    def added(_: int) -> int:
        refused = 0
        while True:
            version, n = at(glue)
            if not commit(glue, n + 1, version):
                return refused
            refused += 1

    with ThreadPoolExecutor(8) as pool:
        refused = sum(pool.map(added, range(40)))
    assert at(glue)[1] == 40
    # Without them the test would say nothing.
    assert refused > 0


def test_a_table_is_made_once(glue: Any) -> None:
    def made(_: int) -> str:
        try:
            glue.create_table(DatabaseName="main", TableInput={"Name": "again"})
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(made, range(8)))
    assert answers == ["", *["AlreadyExistsException"] * 7]
    glue.delete_table(DatabaseName="main", Name="again")


def test_a_bucket_that_refuses_what_comes_without_tls_still_takes_the_tests_objects(cloud: Aws) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="closed", CreateBucketConfiguration={"LocationConstraint": cloud.region})
    told = '{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*"%s}]}'
    s3.put_bucket_policy(Bucket="closed", Policy=told % ', "Condition": {"Bool": {"aws:SecureTransport": "false"}}')
    s3.put_object(Bucket="closed", Key="a", Body=b"1")
    assert s3.get_object(Bucket="closed", Key="a")["Body"].read() == b"1"
    s3.put_bucket_policy(Bucket="closed", Policy=told % "")
    with pytest.raises(ClientError, match="Forbidden"):
        s3.put_object(Bucket="closed", Key="b", Body=b"1")


def test_an_application_waits_to_be_started_and_is_what_was_asked_for(cloud: Aws) -> None:
    emr = cloud.client("emr-serverless")
    made = emr.create_application(name="a", type="SPARK", releaseLabel="emr-spark-8.1.0", architecture="ARM64")
    found = emr.get_application(applicationId=made["applicationId"])["application"]
    assert (found["state"], found["releaseLabel"], found["architecture"]) == ("CREATED", "emr-spark-8.1.0", "ARM64")
    emr.delete_application(applicationId=made["applicationId"])
