"""Check AWS for `tailrace doctor`: the caller, the clock, the bucket, Glue, and an EMR Serverless application.

Small test calls show whether the permissions suffice. Each check deletes what it has created.
"""

from __future__ import annotations

import json
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import urlparse

from tailrace.aws.objects import client
from tailrace.doctor.findings import Finding, UnseenError, WrongError, permission_advice, run_check
from tailrace.doctor.lake_checks import SCRATCH
from tailrace.lake.catalog.backends import Glue, catalog_kind, endpoint
from tailrace.settings import Settings

ODD, REFUSED = 60, 300
"""Two thresholds for the error of this machine's clock, in seconds.

From the first threshold on, the check reports the error; from the second threshold on, AWS refuses requests.
"""

_HASTY = {"connect_timeout": 3, "read_timeout": 10, "retries": {"mode": "standard", "max_attempts": 2}}

_FAULTS = tomllib.loads(files("tailrace.aws").joinpath("faults.toml").read_text("utf-8"))

_CREDENTIALS: str = _FAULTS["no-credentials"]["mend"]


def needs_aws(settings: Settings) -> bool:
    """Return True if any part of this lake is on AWS."""
    return settings.on_s3 or isinstance(catalog_kind(settings), Glue)


@dataclass
class Aws:
    """The checks of AWS for a lake. The checks use one client per AWS service, with short timeouts.

    `asks` is `s3` if only S3 is to be checked.
    """

    settings: Settings
    asks: Literal["all", "s3"] = "all"
    _skew: float | None = field(default=None, init=False)
    _clients: dict[str, Any] = field(default_factory=dict, init=False)

    def who(self) -> Iterator[Finding]:
        """Check who owns the credentials, and by how many seconds this machine's clock is wrong."""
        yield run_check("credentials", self._caller, _CREDENTIALS)
        yield run_check("clock", self._clock)

    def bucket(self) -> Iterator[Finding]:
        """Check that the warehouse's bucket exists and that objects in it can be written, read and deleted."""
        there = run_check("warehouse", self._bucket)
        yield there
        rest: dict[str, Callable[[], str]] = {
            "objects": self._objects, "conditional writes": self._conditional, "bucket settings": self._bucket_settings
        }  # fmt: skip
        for name, check in rest.items():
            yield run_check(name, check) if there.state == "ok" else _without(name, "warehouse")

    def glue(self) -> Iterator[Finding]:
        """Check that the caller may read the database and its tables in Glue."""
        yield run_check("glue", self._glue)

    def application(self, application: str, role: str | None) -> Iterator[Finding]:
        """Check an EMR Serverless application, and the IAM role for its job runs."""
        yield run_check("application", partial(self._application, application))
        yield run_check("job role", partial(self._role, role))

    def sweep(self, address: str) -> None:
        """Delete the objects that a check has left under an address."""
        parsed = urlparse(address)
        under = {"Bucket": parsed.netloc, "Prefix": parsed.path.strip("/") + "/"}
        while objects := self._call("s3", "list_objects_v2", **under).get("Contents"):
            for one in objects:
                self._call("s3", "delete_object", Bucket=parsed.netloc, Key=one["Key"])

    def _caller(self) -> str:
        # An object store that has only the S3 interface has no service that identifies the owner of the credentials.
        alone = endpoint("s3") and self.asks == "s3"
        if alone and not endpoint("sts"):
            raise UnseenError("the store is one of your own (AWS_ENDPOINT_URL_S3), and has no STS to ask", "")
        try:
            caller = self._call("sts", "get_caller_identity")
        except WrongError as error:
            if alone and _code(error) not in ("", *_NOBODY):
                raise UnseenError(f"the service at {endpoint('sts')} has no STS to ask", "") from error
            raise WrongError(error.found, error.mend or _CREDENTIALS) from error
        account = caller["Account"]
        wanted = self.settings.catalog_uri.removeprefix("glue://")
        identity = f"{caller['Arn']}, account {account}"
        if isinstance(catalog_kind(self.settings), Glue) and wanted and wanted != account:
            # A shared catalog may belong to another account, so this finding is not an error. The check of Glue shows
            # whether the caller may use the catalog.
            return f"{identity}; the catalog is of account {wanted}"
        return identity

    def _clock(self) -> str:
        if self._skew is None:
            raise UnseenError("no service answered with the time", "")
        off, by = abs(self._skew), "ahead" if self._skew > 0 else "behind"
        if off >= ODD:
            more = "AWS refuses" if off >= REFUSED else f"from {REFUSED} s on AWS refuses"
            raise _fault("clock", off=off, by=by, more=more)
        return f"within {max(1, round(off))} s of AWS's"

    def _bucket(self) -> str:
        name = self._place[0]
        try:
            answer = self._call("s3", "head_bucket", Bucket=name)
        except WrongError as error:
            if (fault := {404: "no-bucket", 403: "closed-bucket"}.get(_status(error))) is not None:
                raise _fault(fault, bucket=name) from error
            raise
        region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
        ours = self._client("s3").meta.region_name
        if region and region != ours:
            raise _fault("far-bucket", bucket=name, region=region, ours=ours)
        return f"bucket {name} is there, in {region or 'a region that it does not say'}"

    @contextmanager
    def _object(self, **more: Any) -> Iterator[dict[str, str]]:
        """Write a test object, yield its bucket and key as arguments for further calls, and then delete the object."""
        name, prefix = self._place
        at = {"Bucket": name, "Key": f"{prefix}{SCRATCH}/{uuid.uuid4().hex}"}
        self._call("s3", "put_object", **at, Body=b"doctor", **more)
        try:
            yield at
        finally:
            self._call("s3", "delete_object", **at)

    def _objects(self) -> str:
        with self._object() as at:
            read = self._call("s3", "get_object", **at)["Body"].read()
        if read != b"doctor":
            raise _fault("other-object")
        return f"put, read and deleted under s3://{at['Bucket']}/{at['Key'].rpartition('/')[0]}/"

    def _conditional(self) -> str:
        overwritten = _fault("overwritten")
        with self._object(IfNoneMatch="*") as at:
            try:
                self._call("s3", "put_object", **at, Body=b"second", IfNoneMatch="*")
            except WrongError as error:
                if _status(error) == 412:
                    return "an object that is there is not written over where that is ruled out"
                raise WrongError(error.found, error.mend or overwritten.mend) from error
        raise overwritten

    def _bucket_settings(self) -> str:
        name = self._place[0]
        try:
            versioning = self._call("s3", "get_bucket_versioning", Bucket=name).get("Status", "Off").lower()
            try:
                blocked = self._call("s3", "get_public_access_block", Bucket=name)["PublicAccessBlockConfiguration"]
                public = "blocked" if all(blocked.values()) else "blocked in part"
            except WrongError as error:
                if _status(error) != 404:
                    raise
                public = "not blocked by the bucket itself"
        except WrongError as error:
            raise UnseenError(error.found, error.mend) from error
        return f"versioning {versioning}, public access {public}"

    def _glue(self) -> str:
        account = self.settings.catalog_uri.removeprefix("glue://")
        whose, database = {"CatalogId": account} if account else {}, self.settings.namespace
        absent = UnseenError(
            f"there is no database {database} yet",
            "make it, or allow glue:CreateDatabase: the first stream then makes it",
        )
        self._find("glue", "get_database", absent, "EntityNotFoundException", Name=database, **whose)
        self._call("glue", "get_tables", DatabaseName=database, MaxResults=1, **whose)
        return f"database {database} and its tables may be read"

    def _application(self, application: str) -> str:
        absent = _fault("no-application", application=application)
        asked = ("emr-serverless", "get_application", absent, "ResourceNotFoundException")
        answer = self._find(*asked, applicationId=application)["application"]
        summary = f"{answer.get('name', application)}, {answer['releaseLabel']}, {answer['state'].lower()}"
        if answer["state"] not in ("CREATING", "CREATED", "STARTING", "STARTED", "STOPPING", "STOPPED"):
            raise _fault("ended-application", application=application, state=answer["state"].lower())
        if answer["type"].lower() != "spark":
            raise _fault("other-application", application=application, type=answer["type"])
        starts = answer.get("autoStartConfiguration", {}).get("enabled", True)
        if answer["state"] in ("CREATED", "STOPPED") and not starts:
            raise _fault("stopped-application", summary=summary, application=application)
        return summary

    def _role(self, role: str | None) -> str:
        if role is None:
            raise UnseenError("an application does not say which role its runs get", "give it as --role ARN")
        absent = _fault("no-role", role=role)
        try:
            answer = self._find("iam", "get_role", absent, "NoSuchEntity", RoleName=role.rsplit("/", 1)[-1])["Role"]
        except WrongError as error:
            if error is not absent and error.mend:
                raise UnseenError(error.found, error.mend) from error
            raise
        trusted = answer["AssumeRolePolicyDocument"]
        if not _trusts(json.loads(trusted) if isinstance(trusted, str) else trusted):
            raise _fault("untrusting-role", role=role)
        return f"{role} may be taken by EMR Serverless (what it may do shows when a run does it)"

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = client(service, **_HASTY)
        return self._clients[service]

    def _call(self, service: str, what: str, **words: Any) -> dict[str, Any]:
        """Call a service and return its response. Raises `WrongError` with the service's message and a remedy."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

        try:
            answer: dict[str, Any] = getattr(self._client(service), what)(**words)
        except NoCredentialsError:
            raise _fault("no-credentials") from None
        except NoRegionError:
            raise _fault("no-region") from None
        except ClientError as error:
            self._timed(error.response)
            fault = error.response["Error"]
            message = " ".join(f"{service} {what}: {fault.get('Code', '')}: {fault.get('Message', '')}".split())
            raise WrongError(message, _mend(service, what, error)) from error
        except BotoCoreError as error:
            raise _fault("silent", service=service, error=error) from error
        self._timed(answer)
        return answer

    def _find(self, service: str, what: str, absent: WrongError, code: str, **words: Any) -> dict[str, Any]:
        """Call a service.

        Raises `absent` if the service returns the error code `code`, which means that the requested item does not
        exist.
        """
        try:
            return self._call(service, what, **words)
        except WrongError as error:
            if _code(error) == code:
                raise absent from error
            raise

    def _timed(self, answer: dict[str, Any]) -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date:
            self._skew = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()

    @property
    def _place(self) -> tuple[str, str]:
        """The bucket of the warehouse, and the prefix of the keys of the warehouse's objects."""
        parsed = urlparse(self.settings.warehouse_uri)
        prefix = parsed.path.strip("/")
        return parsed.netloc, f"{prefix}/" if prefix else ""


def findings(settings: Settings, application: str | None = None, role: str | None = None) -> Iterator[Finding]:
    """Run the checks of AWS that a lake needs, and yield the findings.

    There are no findings if the lake does not use AWS and no application is specified.
    """
    if not needs_aws(settings) and application is None:
        return
    at_glue = isinstance(catalog_kind(settings), Glue)
    aws = Aws(settings, "all" if at_glue or application is not None else "s3")
    who = list(aws.who())
    yield from who
    parts: list[tuple[str, Callable[[], Iterator[Finding]]]] = []
    if settings.on_s3:
        parts.append(("warehouse", aws.bucket))
    if at_glue:
        parts.append(("glue", aws.glue))
    if application is not None:
        parts.append(("application", partial(aws.application, application, role)))
    for name, part in parts:
        if who[0].state == "wrong":
            yield _without(name, "credentials")
        else:
            yield from part()


def _fault(name: str, **values: object) -> WrongError:
    """Create the error for a fault in `faults.toml`, with these values for its placeholders."""
    return WrongError(**{part: text.format(**values) for part, text in _FAULTS[name].items()})


def _without(name: str, what: str) -> Finding:
    return Finding(name, "not looked at", f"something has to be right first: {what}")


_ACTIONS = {"head_bucket": "s3:ListBucket", "list_objects_v2": "s3:ListBucket"} | {
    "get_public_access_block": "s3:GetBucketPublicAccessBlock"
}
"""A mapping from AWS API calls to the permissions that the calls need.

The mapping contains only the calls whose permission is not named after the call.
"""


_NOBODY = (
    "InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException",
    "UnrecognizedClientException", "AuthFailure",
)  # fmt: skip
"""The error codes that services return if the credentials are invalid or have expired."""


def _mend(service: str, what: str, error: Any) -> str:
    code = error.response["Error"].get("Code", "")
    if code in _NOBODY:
        return _CREDENTIALS
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return "set the clock, and keep it by NTP"
    if "AccessDenied" in code and not permission_advice(error):
        action = _ACTIONS.get(what, f"{service}:{''.join(word.title() for word in what.split('_'))}")
        return f"allow {action} to who runs this"
    return permission_advice(error)


def _response(error: WrongError) -> dict[str, Any]:
    response: dict[str, Any] = getattr(error.__cause__, "response", {})
    return response


def _status(error: WrongError) -> int:
    return int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: WrongError) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def _trusts(policy: dict[str, Any]) -> bool:
    """Return True if a trust policy allows EMR Serverless to assume the role."""

    def listed(value: Any) -> list[Any]:
        return value if isinstance(value, list) else [value]

    return any(
        statement.get("Effect") == "Allow"
        and "emr-serverless.amazonaws.com" in listed(_service(statement.get("Principal")))
        and {"sts:AssumeRole", "sts:*", "*"} & {*listed(statement.get("Action"))}
        for statement in listed(policy.get("Statement", []))
    )


def _service(principal: Any) -> Any:
    return principal.get("Service") if isinstance(principal, dict) else None
