"""terraform/ is valid, does what its tests say, and can be made, made again without a change, and taken away."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tailrace.aws.bundle import conf
from tailrace.aws.emr import Application
from tailrace.settings import PREFIX, Settings
from tests.support.services.aws import ACCOUNT, REGION, Aws, aws
from tests.support.services.terraform import ENVIRONMENTS, MODULES, ROOT, SOURCES, Terraform, resources

pytestmark = pytest.mark.system

FILES = sorted(one for one in SOURCES.rglob("*.tf") if ".terraform" not in one.parts)
SUITES = sorted((SOURCES / "tests").glob("*.tftest.hcl"))
PLACES = [*(f"modules/{one}" for one in MODULES), *(f"envs/{one}" for one in ENVIRONMENTS)]
BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)

STREAMS = "streams = {\n  flights = {}\n  rides   = { lag_seconds = 60, silent_minutes = 0 }\n}\n"
GIVEN = f"""
region             = "{REGION}"
zones              = ["{REGION}a", "{REGION}b"]
analyst_principals = ["arn:aws:iam::{ACCOUNT}:root"]
alarm_emails       = ["on-call@example.com"]
landing            = {{ "landing-bucket" = "flights/" }}
job_conf           = {{ "spark.sql.shuffle.partitions" = "8" }}
secrets            = {{ "kafka/password" = {{ description = "Of the broker", readers = ["stream"] }} }}
{STREAMS}"""


@pytest.fixture
def terraform(tmp_path: Path) -> Terraform:
    return Terraform(tmp_path)


@pytest.fixture
def cloud() -> Iterator[Aws]:
    with aws() as made:
        yield made


def test_it_is_written_as_terraform_writes_it(terraform: Terraform) -> None:
    assert terraform.run(".", "fmt", "-check", "-recursive", "-diff") == ""


@pytest.mark.parametrize("place", PLACES)
def test_it_is_valid(terraform: Terraform, place: str) -> None:
    terraform.init(place)
    found = json.loads(terraform.run(place, "validate", "-json"))
    assert (found["valid"], found["diagnostics"]) == (True, [])


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda one: one.name.removesuffix(".tftest.hcl"))
def test_a_module_does_what_its_tests_say(terraform: Terraform, suite: Path) -> None:
    terraform.init(".")
    said = terraform.run(".", "test", "-no-color", f"-filter=tests/{suite.name}")
    runs = suite.read_text().count('\nrun "')
    assert f"Success! {runs} passed, 0 failed." in said


@pytest.mark.slow
def test_a_project_of_one_s_own_takes_the_platform_out_of_a_repository(tmp_path: Path) -> None:
    """The example in a folder of its own, with a repository that has `terraform/` alone for that on the network."""
    terraform, outside = Terraform(tmp_path), tmp_path / "project"
    shutil.copytree(terraform.at("examples/own_project"), outside)
    text = (outside / "main.tf").read_text()
    tag = f"v{re.search(r'[?]ref=v([0-9.]+)', text)[1]}"  # type: ignore[index]
    git = ["git", "-C", str(tmp_path / "repository"), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    shutil.copytree(terraform.at("modules"), tmp_path / "repository" / "terraform" / "modules")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "a"], ["tag", tag]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    there = "https://github.com/ORGANISATION/tailrace.git"
    assert text.count(there) == 1
    (outside / "main.tf").write_text(text.replace(there, f"file://{tmp_path}/repository"))
    terraform.init("../project")
    said = terraform.run("../project", "test", "-no-color")
    runs = (outside / "tests" / "platform.tftest.hcl").read_text().count('\nrun "')
    assert f"Success! {runs} passed, 0 failed." in said


def test_a_module_names_no_file_outside_of_the_modules() -> None:
    for file in (SOURCES / "modules").rglob("*.tf"):
        text = file.read_text()
        assert not re.search(r"path\.(root|cwd)|\babspath\(", text), file
        for source in re.findall(r'^ *source += "([^"]*)"', text, re.MULTILINE):
            if source.startswith("."):
                assert (file.parent / source).resolve().parent == SOURCES / "modules", f"{file}: {source}"


def test_each_module_has_a_suite() -> None:
    assert [one.name.removesuffix(".tftest.hcl") for one in SUITES] == list(MODULES)


def test_each_variable_and_output_says_what_it_is() -> None:
    silent = [
        f"{file.relative_to(SOURCES)}: {name}"
        for file in FILES
        for _, name, body in BLOCK.findall(file.read_text())
        if not re.search(r'^  description = ".{10,}"$', body, re.MULTILINE)
    ]
    assert silent == []


def test_files_are_short_and_name_nobody_s_account() -> None:
    for file in [*FILES, *SOURCES.rglob("*.hcl"), *SOURCES.rglob("*.example")]:
        if ".terraform" not in file.parts:
            text = file.read_text()
            assert len(text.splitlines()) <= 400, file
            assert {*re.findall(r"(?<![0-9-])[0-9]{12}(?![0-9])", text)} <= {ACCOUNT}, file


def test_environments_differ_in_size_and_in_nothing_that_is_asked_for() -> None:
    for name in ("variables.tf", "outputs.tf", "versions.tf"):
        assert (SOURCES / "envs/dev" / name).read_text() == (SOURCES / "envs/prod" / name).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_is_made_stays_as_it_is_and_is_taken_away(tmp_path: Path, cloud: Aws, name: str) -> None:
    terraform, where, prefix = Terraform(tmp_path, cloud.environment), f"envs/{name}", f"tailrace-{name}"
    terraform.on_a_test_server(where)
    (terraform.at(where) / "given.auto.tfvars").write_text(GIVEN)
    terraform.init(where, "-reconfigure")
    terraform.run(where, "apply", "-auto-approve", "-input=false", "-no-color")
    made = resources(terraform.shown(where))
    assert len(made) > 70

    again = terraform.run(where, "plan", "-detailed-exitcode", "-input=false", "-no-color")
    assert "No changes. Your infrastructure matches the configuration." in again

    _has_names_and_tags(made, prefix, name)
    _buckets_are_closed(cloud, prefix, name)
    _runs_can_be_asked_for(cloud, terraform.output(where, "runner"), prefix)
    told = {one["AlarmName"] for one in cloud.client("cloudwatch").describe_alarms()["MetricAlarms"]}
    assert told == {*terraform.output(where, "alarms")["names"]}
    assert {f"{prefix}-flights-watermark-lag", f"{prefix}-flights-no-epochs", f"{prefix}-rides-lease-lost"} <= told
    assert f"{prefix}-rides-no-epochs" not in told

    s3, lake = cloud.client("s3"), f"{prefix}-lake-{ACCOUNT}"
    s3.put_object(Bucket=lake, Key="warehouse/a", Body=b"1")
    if name == "prod":
        said = terraform.run(where, "destroy", "-auto-approve", "-input=false", "-no-color", fails=True)
        assert "BucketNotEmpty" in said
        # What is in it can be found and read as before.
        assert cloud.client("glue").get_database(Name="tailrace_prod")
        keys = [cloud.client("kms").describe_key(KeyId=one["KeyId"]) for one in cloud.client("kms").list_keys()["Keys"]]
        assert [one["KeyMetadata"]["KeyState"] for one in keys] == ["Enabled"]
        for bucket in (one["Name"] for one in s3.list_buckets()["Buckets"]):
            for one in s3.list_object_versions(Bucket=bucket).get("Versions", []):
                s3.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
    terraform.run(where, "destroy", "-auto-approve", "-input=false", "-no-color")
    assert s3.list_buckets()["Buckets"] == []
    assert cloud.client("glue").get_databases()["DatabaseList"] == []


def _has_names_and_tags(made: list[dict[str, Any]], prefix: str, name: str) -> None:
    for one in made:
        values = one["values"]
        if "tags_all" in values:
            tags = values["tags_all"]
            assert (tags["Project"], tags["Environment"], tags["ManagedBy"]) == ("tailrace", name, "terraform"), one
        named = values.get("bucket") or values.get("alarm_name") or values.get("name")
        # A database's name is tailrace's namespace, without hyphens; the default group's is AWS's own.
        if named and one["type"] not in ("aws_glue_catalog_database", "aws_default_security_group", "aws_s3_object"):
            assert named.removeprefix("alias/").removeprefix("/").startswith(prefix), one["address"]


def _buckets_are_closed(cloud: Aws, prefix: str, name: str) -> None:
    s3 = cloud.client("s3")
    parts = {one["Name"].removeprefix(f"{prefix}-").removesuffix(f"-{ACCOUNT}") for one in s3.list_buckets()["Buckets"]}
    assert parts == {"lake", "artifacts", "access"} - ({"access"} if name == "dev" else set())
    for part in parts:
        bucket = f"{prefix}-{part}-{ACCOUNT}"
        assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
        assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
        (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        wanted = "AES256" if part == "access" else "aws:kms"
        assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == wanted


def _runs_can_be_asked_for(cloud: Aws, runner: Mapping[str, Any], prefix: str) -> None:
    """What Terraform says is what `Application` takes, and names what there is."""
    key = {"Bucket": f"{prefix}-artifacts-{ACCOUNT}", "Key": "tailrace/dags/runner.json"}
    assert json.loads(cloud.client("s3").get_object(**key)["Body"].read()) == runner
    for name, values in runner.items():
        application = Application(**values)
        found = cloud.client("emr-serverless").get_application(applicationId=application.id)["application"]
        assert found["name"] == f"{prefix}-{name}"
        role = cloud.client("iam").get_role(RoleName=application.role.rsplit("/", 1)[1])["Role"]
        assert role["Arn"] == application.role
        # What the bundle says of itself, with any of its jars.
        assert conf(application.place, ["jars/*.jar"]).items() <= application.conf.items()
        assert (application.definitions, application.environment["TAILRACE_CONTRACTS"]) == (
            "definitions/pipelines",
            "definitions/iceberg_schemas",
        )
        assert "--conf spark.sql.shuffle.partitions=8" in application.parameters
        groups = cloud.client("logs").describe_log_groups(logGroupNamePrefix=application.log_group)["logGroups"]
        assert [one["logGroupName"] for one in groups] == [application.log_group]
        own = {one.removeprefix(PREFIX).lower() for one in application.environment if one.startswith(PREFIX)}
        assert own <= {*Settings.model_fields}
        assert {"warehouse", "catalog", "catalog_uri", "namespace", "log_format"} <= own


@pytest.mark.slow
def test_two_never_change_one_state_at_once(tmp_path: Path, cloud: Aws) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="state", CreateBucketConfiguration={"LocationConstraint": REGION})
    terraform, where = Terraform(tmp_path, cloud.environment), "envs/prod"
    terraform.on_a_test_server(where, local_state=False)
    (terraform.at(where) / "given.auto.tfvars").write_text(GIVEN)
    example = (SOURCES / where / "backend.hcl.example").read_text().replace("ORGANISATION-terraform-state", "state")
    # The rest is of the test server alone.
    more = "use_path_style = true\nskip_credentials_validation = true\nskip_requesting_account_id = true\n"
    (terraform.at(where) / "backend.hcl").write_text(example + more + "skip_s3_checksum = true\n")
    terraform.init(where, "-reconfigure", "-backend-config=backend.hcl")
    only = "-target=module.platform.module.observability.aws_cloudwatch_dashboard.this"
    own = "-target=module.platform.module.security.aws_kms_key.this"
    terraform.run(where, "apply", "-auto-approve", "-input=false", "-no-color", own)
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket="state")["Contents"]]
    assert keys == ["tailrace/prod/terraform.tfstate"]

    lock = {"ID": "another", "Operation": "OperationTypeApply", "Who": "another", "Created": "2026-01-01T00:00:00Z"}
    s3.put_object(Bucket="state", Key=f"{keys[0]}.tflock", Body=json.dumps(lock).encode())
    said = terraform.run(where, "plan", "-input=false", "-no-color", only, fails=True)
    assert "Error acquiring the state lock" in said
    s3.delete_object(Bucket="state", Key=f"{keys[0]}.tflock")
    terraform.run(where, "plan", "-input=false", "-no-color", only)
    with pytest.raises(ClientError):
        s3.get_object(Bucket="state", Key=f"{keys[0]}.tflock")


SECURITY = f"""
module "security" {{
  source = "./modules/security"

  context              = {{ name = "tailrace-test", account_id = "{ACCOUNT}", region = "{REGION}" }}
  lake_bucket_arn      = "arn:aws:s3:::lake"
  artifacts_bucket_arn = "arn:aws:s3:::artifacts"
  databases            = ["tailrace_test"]
  log_groups           = {{ stream = "arn:aws:logs:a:b:log-group:s", backfill = "arn:aws:logs:a:b:log-group:b" }}
  msk                  = {{ cluster_name = "kafka" }}
  applications = {{
    stream   = "arn:aws:emr-serverless:a:b:/applications/s"
    backfill = "arn:aws:emr-serverless:a:b:/applications/b"
  }}
  landing              = {{ "landing-bucket" = "" }}
  analyst_principals   = ["arn:aws:iam::{ACCOUNT}:root"]
  secrets              = {{ a = {{ description = "All", readers = ["stream", "backfill", "airflow"] }} }}
}}

output "policies" {{
  description = "Of each role."
  value       = module.security.policies
}}
"""


def test_the_table_of_actions_is_that_of_the_policies(tmp_path: Path, cloud: Aws) -> None:
    terraform = Terraform(tmp_path, cloud.environment)
    (terraform.at(".") / "main.tf").write_text(SECURITY + f'provider "aws" {{\n  region = "{REGION}"\n}}\n')
    terraform.on_a_test_server(".")
    terraform.init(".", "-reconfigure")
    terraform.run(".", "apply", "-auto-approve", "-input=false", "-no-color")
    held = {
        role: {action for statement in json.loads(policy) for action in statement["Action"]}
        for role, policy in terraform.output(".", "policies").items()
    }
    held["flows"] = set(re.findall(r'"(logs:\w+)"', (SOURCES / "modules/network/flows.tf").read_text()))
    assert _table() == {role: sorted(actions) for role, actions in held.items()}
    # IAM itself took them, as documents of its own.
    assert {one["RoleName"] for one in cloud.client("iam").list_roles()["Roles"]} == {
        f"tailrace-test-{role}" for role in ("stream", "backfill", "analyst", "airflow")
    }


def _table() -> dict[str, list[str]]:
    """The table of terraform/README.md, by role; each row has its reason."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "terraform" / "README.md").read_text().splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")]
        actions = re.findall(r"`([a-z0-9-]+:[A-Za-z]+)`", cells[0]) if line.startswith("| `") else []
        if actions:
            assert len(cells) == 4, line
            assert all(len(one) > 2 for one in cells), line
            for role in cells[1].split(", "):
                found.setdefault(role, []).extend(actions)
    return {role: sorted(actions) for role, actions in found.items()}
