"""Read and write objects in S3. An object is named by its address: `s3://bucket/key`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

from tailrace.model.base.errors import TailraceError


class AwsError(TailraceError, RuntimeError):
    """Raised if a service refuses a call, or if an address or a value is invalid. The message states the reason."""


def client(service: str, **config: Any) -> Any:
    """Create a client for a service; the client retries failed calls. Raises `AwsError` if boto3 is not installed.

    `config` contains botocore settings, for callers that need shorter timeouts.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise AwsError("boto3 is not installed: pip install 'tailrace[aws]'") from None
    return boto3.client(service, config=Config(**{"retries": {"mode": "standard", "max_attempts": 5}} | config))


@contextmanager
def naming_faults(address: str) -> Iterator[None]:
    """If the block raises an S3 error, raise an `AwsError` that names the address instead."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise AwsError(f"{address}: {error}") from error


def put(address: str, text: str) -> None:
    """Write a text to an address. Raises `AwsError` if the text cannot be written."""
    bucket, key = _parts(address)
    with naming_faults(address):
        client("s3").put_object(Bucket=bucket, Key=key, Body=text.encode())


def get(address: str) -> str | None:
    """Read the text at an address, or return None if there is no object. Raises `AwsError` if reading fails."""
    bucket, key = _parts(address)
    s3 = client("s3")
    with naming_faults(address):
        try:
            body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None
    return body.decode()


def _parts(address: str) -> tuple[str, str]:
    parsed = urlparse(address)
    if parsed.scheme != "s3" or not parsed.netloc or not parsed.path.strip("/"):
        raise AwsError(f"{address!r}: expected an address such as s3://bucket/key")
    return parsed.netloc, parsed.path.lstrip("/")
