"""Upload a bundle to S3: first the files that are missing from S3 or have changed, then the manifest.

S3 contains no manifest while an upload changes files. A reader that finds a manifest therefore finds complete files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tailrace.aws.objects import AwsError, client, naming_faults
from tailrace.toolchain.jars import sha256_of

MANIFEST = "manifest.json"
"""The name of the file in a bundle that lists all other files."""

SUM = "sha256"
"""The key of an object's metadata that holds the sha256 of the object's content."""


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return a dict from the path of each file in a bundle to the file's sha256 and its size in bytes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): {SUM: sha256_of(path), "bytes": path.stat().st_size} for path in paths}


def split_address(place: str) -> tuple[str, str]:
    """Split an address into its bucket and its prefix, which ends with a slash.

    Raises `AwsError` if the address is invalid.
    """
    match = re.fullmatch(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w.=-]+)*)/?", place)
    if match is None:
        raise AwsError(f"--to {place!r}: expected an address such as s3://my-bucket/tailrace")
    prefix = match[2].strip("/")
    return match[1], f"{prefix}/" if prefix else ""


def upload_bundle(folder: Path, place: str, tell: Callable[[str], None]) -> list[str]:
    """Upload a bundle to an address; return the paths of the uploaded files (empty if nothing has changed).

    Files that only an earlier bundle contained stay in S3, but the manifest does not list them. Raises `AwsError` if
    the folder has changed since its manifest was written, or if S3 refuses a call.
    """
    bucket, prefix = split_address(place)
    try:
        named: Mapping[str, Mapping[str, Any]] = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError):
        raise AwsError(f"{folder} has no {MANIFEST} that can be read: build the bundle again") from None
    here = list_files(folder)
    if odd := sorted({*here} ^ {*named} | {path for path in {*here} & {*named} if here[path] != named[path]}):
        raise AwsError(f"{folder} has changed since its manifest was written ({odd[0]}): build the bundle again")
    to = _Place(bucket, prefix)
    sums = {path: facts[SUM] for path, facts in here.items()} | {MANIFEST: sha256_of(folder / MANIFEST)}
    changed = [path for path in here if to.digest(path) != sums[path]]
    if changed:
        to.remove(MANIFEST)
    elif to.digest(MANIFEST) == sums[MANIFEST]:
        return []
    for path in (*changed, MANIFEST):
        tell(f"{path}, {(folder / path).stat().st_size / 1e6:,.1f} MB")
        to.put(folder / path, path, sums[path])
    return [*changed, MANIFEST]


class _Place:
    """The objects in a bucket whose keys start with a prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix, self.s3 = bucket, prefix, client("s3")

    def digest(self, path: str) -> str | None:
        """Return the sha256 in an object's metadata.

        Returns None if there is no object, and an empty text if the object's metadata has no sha256 (because another
        program uploaded the object).
        """
        with self._naming_faults(path):
            try:
                head = self.s3.head_object(Bucket=self.bucket, Key=self.prefix + path)
            except self.s3.exceptions.ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                    raise
                return None
        found: str = head["Metadata"].get(SUM, "")
        return found

    def remove(self, path: str) -> None:
        """Delete an object if it exists."""
        with self._naming_faults(path):
            self.s3.delete_object(Bucket=self.bucket, Key=self.prefix + path)

    def put(self, file: Path, path: str, digest: str) -> None:
        """Upload a file, in several parts if the file is large.

        S3 verifies the sha256 of the bytes that it receives.
        """
        more = {"Metadata": {SUM: digest}, "ChecksumAlgorithm": "SHA256"}
        with self._naming_faults(path):
            self.s3.upload_file(str(file), self.bucket, self.prefix + path, ExtraArgs=more)

    def _naming_faults(self, path: str) -> AbstractContextManager[None]:
        return naming_faults(f"s3://{self.bucket}/{self.prefix}{path}")
