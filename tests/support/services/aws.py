"""AWS on this machine: moto's server on loopback, with what stock moto lacks or gets wrong mended.

    with aws() as cloud:
        cloud.client("glue").create_database(DatabaseInput={"Name": "main"})
        subprocess.run([...], env=os.environ | cloud.environment)

Buckets are told apart by path, not by host: a client in another language has to be told so (Spark's S3FileIO
`s3.path-style-access`, Terraform's `s3_use_path_style`). What it knows it keeps in this process: one server at a time.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.loaders import JSONFileLoader
from moto.core.exceptions import JsonRESTError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.emrserverless.models import EMRServerlessBackend
from moto.emrserverless.responses import EMRServerlessResponse
from moto.glue.responses import GlueResponse
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.models import FakeBucket
from moto.server import ThreadedMotoServer
from werkzeug.serving import BaseWSGIServer

ACCOUNT = DEFAULT_ACCOUNT_ID
REGION = "eu-central-1"


@dataclass(frozen=True)
class Aws:
    """A running one. `environment` is what a process of any language needs to take it for AWS."""

    url: str
    region: str = REGION
    account: str = ACCOUNT

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            # No profile and no machine's own role is asked.
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def client(self, service: str) -> Any:
        """A client of one of its services."""
        return boto3.client(
            service, endpoint_url=self.url, region_name=self.region, aws_access_key_id="test",
            aws_secret_access_key="test",
        )  # fmt: skip


@contextmanager
def aws(port: int = 0, *, by_version: bool = True) -> Iterator[Aws]:
    """Serve it, empty, at a port that is free, until the block ends; Glue looks at versions where it is to."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        mend(patch)
        if by_version:
            _glue_commits_by_version(patch)
        _without_waits(patch)
        server.start()
        host, found = server.get_host_and_port()
        cloud = Aws(f"http://{host}:{found}")
        try:
            yield cloud
        finally:
            urllib.request.urlopen(urllib.request.Request(f"{cloud.url}/moto-api/reset", method="POST")).close()
            server.stop()


def _without_waits(patch: pytest.MonkeyPatch) -> None:
    """Have the server stop at once, where it looks twice a second, and clients share the descriptions of services."""
    serve = BaseWSGIServer.serve_forever
    patch.setattr(BaseWSGIServer, "serve_forever", lambda self: serve(self, poll_interval=0.02))
    patch.setattr(JSONFileLoader, "load_file", lambda self, path: _service_model(path))


@cache
def _service_model(path: str) -> Any:
    return _load_file(JSONFileLoader(), path)


_load_file = JSONFileLoader.load_file


def mend(patch: pytest.MonkeyPatch) -> None:
    """Make moto do what AWS does, as long as the patch lasts."""
    _applications_as_asked_for(patch)
    _conditions_of_buckets(patch)
    # Stock moto forgets the description of a rule that names a group.
    patch.setattr(SecurityGroupRule, "description", property(_description))


class _MovedError(JsonRESTError):
    """What Glue says of an update that was made of another version than the current one."""

    code = 400

    def __init__(self) -> None:
        super().__init__("ConcurrentModificationException", "Update table failed due to concurrent modifications.")


def _glue_commits_by_version(patch: pytest.MonkeyPatch) -> None:
    """Stock moto takes any update: of two commits to one version it loses one, and acknowledges both."""
    lock = threading.Lock()
    update, create, delete = GlueResponse.update_table, GlueResponse.create_table, GlueResponse.delete_table

    def checked(self: GlueResponse) -> Any:
        with lock:
            asked = self.parameters.get("VersionId")
            table = self.glue_backend.get_table(self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"])
            if asked is not None and str(asked) != table.as_dict()["VersionId"]:
                raise _MovedError
            return update(self)

    def created(self: GlueResponse) -> Any:
        with lock:
            return create(self)

    def deleted(self: GlueResponse) -> Any:
        with lock:
            return delete(self)

    patch.setattr(GlueResponse, "update_table", checked)
    patch.setattr(GlueResponse, "create_table", created)
    patch.setattr(GlueResponse, "delete_table", deleted)


def _applications_as_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Stock moto's applications run as soon as they are made, forget what they are for, and know old releases alone."""
    make, answer = EMRServerlessBackend.create_application, EMRServerlessResponse.create_application

    def made(self: EMRServerlessBackend, **asked: Any) -> Any:
        application = make(self, **{**asked, "release_label": "emr-7.12.0"})
        application.release_label = asked["release_label"]
        application.state = "CREATED"
        return application

    def told(self: EMRServerlessResponse) -> Any:
        found: Any = answer(self)
        # Set on the application, they are in every answer about it.
        application: Any = self.emrserverless_backend.applications[found.result["applicationId"]]
        application.architecture = self._get_param("architecture") or "X86_64"
        application.image_configuration = self._get_param("imageConfiguration")
        return found

    patch.setattr(EMRServerlessBackend, "create_application", made)
    patch.setattr(EMRServerlessResponse, "create_application", told)


def _conditions_of_buckets(patch: pytest.MonkeyPatch) -> None:
    """Stock moto takes "deny what comes without TLS" for "deny": what is said under a condition is left out here."""

    def asked(self: FakeBucket, action: str, resource: str) -> Any:
        if self.policy is None:
            return PermissionResult.NEUTRAL
        policy = json.loads(self.policy)
        policy["Statement"] = [one for one in policy["Statement"] if "Condition" not in one]
        if not policy["Statement"]:
            return PermissionResult.NEUTRAL
        return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource)

    patch.setattr(FakeBucket, "get_permission", asked)


def _description(rule: SecurityGroupRule) -> str | None:
    said: str | None = rule.ip_range.get("Description") or rule.source_group.get("Description")
    return said
