"""Upload a bundle to S3: first the files that differ, the manifest last.

While files are changing, S3 has no manifest. So a reader that finds a manifest finds all of its files complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tailrace.aws.objects import AwsError, client
from tailrace.toolchain.jars import sha256_of

MANIFEST = "manifest.json"
"""The file of a bundle that names all other files."""

SUM = "sha256"
"""The metadata of an object that holds the sha256 of its content."""


def contents(folder: Path) -> dict[str, dict[str, Any]]:
    """List the files of a bundle by their paths in it, each with its sha256 and its size in bytes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): {SUM: sha256_of(path), "bytes": path.stat().st_size} for path in paths}


def address(place: str) -> tuple[str, str]:
    """Split an address into its bucket and its prefix, which ends with a slash. Raises `AwsError` if it is invalid."""
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w.=-]+)*)/?", place)
    if match is None:
        raise AwsError(f"--to {place!r}: expected an address such as s3://my-bucket/tailrace")
    prefix = match[2].strip("/")
    return match[1], f"{prefix}/" if prefix else ""


def uploaded(folder: Path, place: str, tell: Callable[[str], None]) -> list[str]:
    """Upload a bundle to an address; return the paths of the uploaded files, empty if all were there already.

    Additional files of an earlier bundle stay, without a manifest that names them. Raises `AwsError` if the folder has
    changed since its manifest was written, or if S3 refuses a call.
    """
    bucket, prefix = address(place)
    try:
        named: Mapping[str, Mapping[str, Any]] = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError):
        raise AwsError(f"{folder} has no {MANIFEST} that holds: build the bundle anew") from None
    here = contents(folder)
    if odd := sorted({*here} ^ {*named} | {path for path in {*here} & {*named} if here[path] != named[path]}):
        raise AwsError(f"{folder} has changed since its manifest was written ({odd[0]}): build the bundle anew")
    to = _Place(bucket, prefix)
    sums = {path: facts[SUM] for path, facts in here.items()} | {MANIFEST: sha256_of(folder / MANIFEST)}
    changed = [path for path in here if to.holds(path) != sums[path]]
    if changed:
        to.remove(MANIFEST)
    elif to.holds(MANIFEST) == sums[MANIFEST]:
        return []
    for path in (*changed, MANIFEST):
        tell(f"{path}, {(folder / path).stat().st_size / 1e6:,.1f} MB")
        to.put(folder / path, path, sums[path])
    return [*changed, MANIFEST]


class _Place:
    """The objects of a bucket whose keys have a prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix, self.s3 = bucket, prefix, client("s3")

    def holds(self, path: str) -> str | None:
        """Return the sha256 stored with an object: None without an object, empty if another program uploaded it."""
        head = self._asked("head_object", path)
        return None if head is None else head["Metadata"].get(SUM, "")

    def remove(self, path: str) -> None:
        """Delete an object, if there is one."""
        self._asked("delete_object", path)

    def put(self, file: Path, path: str, digest: str) -> None:
        """Upload a file, in parts if it is large; S3 checks the sha256 of what it receives."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        more = {"Metadata": {SUM: digest}, "ChecksumAlgorithm": "SHA256"}
        try:
            self.s3.upload_file(str(file), self.bucket, self.prefix + path, ExtraArgs=more)
        except (Boto3Error, BotoCoreError, ClientError) as error:
            raise AwsError(f"s3://{self.bucket}/{self.prefix}{path} cannot be written ({error})") from error

    def _asked(self, what: str, path: str) -> dict[str, Any] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.s3, what)(Bucket=self.bucket, Key=self.prefix + path)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404 and what == "head_object":
                return None
            raise AwsError(f"s3://{self.bucket}/{self.prefix}{path}: {error}") from error
        except BotoCoreError as error:
            raise AwsError(f"S3 cannot be asked ({error})") from error
        return answer
