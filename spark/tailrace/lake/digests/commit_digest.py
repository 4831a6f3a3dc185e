"""Compute the digest that is stored in each of Tailrace's commits, so that an audit detects foreign changes.

A digest has two parts. `files` is a digest of all data and delete files in the table after the commit. This digest is
the sum of the hashes of all these files. So a commit only has to add the hashes of the files that it adds, and to
subtract the hashes of the files that it removes. `link` is a hash of the commit's id, its properties, its `files` and
the previous commit's link.

The links form a chain. The chain breaks if a commit was inserted, removed or replaced, or if a property of a commit was
changed. Spark's commits have no digest, because Spark itself chooses the names of the files. The next commit of this
process computes the digest of the existing files, and names the last commit with a digest.

The name of the digest's snapshot property does not begin with the prefix of Tailrace's other properties. A commit
outside the stream repeats the previous commit's properties that have this prefix, but must not repeat the digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

DIGEST = "tailrace-digest"
"""The name of the snapshot property with the commit's digest."""

CHECKSUMS = "tailrace-checksums"
"""The name of the snapshot property with the checksums of the files that the commit added."""

ACCEPTED = "accepted"
"""The name of the property in which a commit lists the ids of foreign commits that the user accepts.

`commit.commit_history` reads this property.
"""

MOST_CHECKSUMS = 32
"""The maximum number of files for which a commit records separate checksums.

If a commit adds more files than this maximum, the commit records one combined checksum for all these files.
"""

_BITS = 128
"""The number of bits in a digest. Digests are short, because each commit writes the digests of all the table's
snapshots again.
"""

_CHECKSUM = "checksum"
"""The name of the attribute in which a `DataFile` object stores the checksum of the file's bytes.

Iceberg itself has no such field.
"""


@dataclass(frozen=True)
class CommitDigest:
    """The digest of a commit; `since` is the last earlier snapshot with a digest, or None for the chain's first
    commit.
    """

    link: str
    files: str
    since: int | None

    @classmethod
    def parse(cls, text: str) -> CommitDigest | None:
        """Parse a digest from text; return None if the text is not a digest.

        >>> CommitDigest.parse("ab cd 7"), CommitDigest.parse("ab cd -"), CommitDigest.parse("ab")
        (CommitDigest(link='ab', files='cd', since=7), CommitDigest(link='ab', files='cd', since=None), None)
        """
        parts = text.split(" ")
        if len(parts) != 3 or not (parts[2] == "-" or parts[2].isdigit()):
            return None
        return cls(parts[0], parts[1], None if parts[2] == "-" else int(parts[2]))

    @classmethod
    def of(cls, snapshot: Snapshot | None) -> CommitDigest | None:
        """Read the digest of a snapshot; return None if the snapshot has no digest."""
        text = digest_text(snapshot)
        return None if text is None else cls.parse(text)

    def __str__(self) -> str:
        return f"{self.link} {self.files} {'-' if self.since is None else self.since}"


def digest_text(snapshot: Snapshot | None) -> str | None:
    """Return a snapshot's digest as text, or None if the snapshot has no digest."""
    found = summary_of(snapshot).get(DIGEST)
    return None if found is None else str(found)


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Return the summary of a snapshot, which has Iceberg's counts and the commit's properties.

    The summary is empty if the snapshot is None or has no summary.
    """
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties


def link_of(before: str, snapshot: int, files: str, properties: Mapping[str, str], checksums: str) -> str:
    """Compute the link of a commit; `before` is the previous commit's link, or empty if this commit begins the
    chain.
    """
    said = json.dumps([before, snapshot, files, sorted(properties.items()), checksums])
    return sha256(said.encode()).hexdigest()[: _BITS // 4]


def mark_of(file: DataFile) -> int:
    """Return a hash of a file's name, size and number of rows; the sum of these hashes is `CommitDigest.files`.

    The file's folder is not included, so that the digests of a moved lake stay the same.
    """
    name = file.file_path.rpartition("/")[2]
    return int.from_bytes(sha256(f"{name}\n{file.file_size_in_bytes}\n{file.record_count}".encode()).digest())


def digest_of(files: Iterable[DataFile]) -> str:
    """Compute one digest for all given files, usually all files of a table."""
    return _text(sum(map(mark_of, files)))


def _text(number: int) -> str:
    return f"{number % (1 << _BITS):0{_BITS // 4}x}"


def manifests_of(table: Table) -> list[ManifestFile]:
    """List the manifests of a loaded table's current snapshot; a table without a snapshot has none."""
    snapshot = table.current_snapshot()
    return [] if snapshot is None else snapshot.manifests(table.io)


def manifest_entries(manifests: Iterable[ManifestFile], io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the manifests' entries for the current data files and delete files; skip the entries for removed files."""
    for manifest in manifests:
        yield from manifest.fetch_manifest_entry(io)


def manifest_files(manifests: Iterable[ManifestFile], io: FileIO) -> Iterator[DataFile]:
    """Yield the files, including delete files, that the given manifests list and that are currently part of the
    table.
    """
    for entry in manifest_entries(manifests, io):
        yield entry.data_file


def digest_properties(
    metadata: TableMetadata,
    parent: int | None,
    snapshot: int,
    properties: Mapping[str, str],
    io: FileIO,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
) -> dict[str, str]:
    """Compute the digest properties of a commit that adds and removes these files and has these `properties`.

    The digest of the files before the commit is normally taken from the previous commit. In two cases, this digest is
    computed from the manifests instead: the previous commit has no digest, or the new commit accepts foreign commits.
    In the second case, the previous commit's digest cannot be trusted, because a foreign program may have written it.
    """
    added = list(added)
    before = None if parent is None else metadata.snapshot_by_id(parent)
    at = CommitDigest.of(before)
    anew = at is None or any(name.rpartition(".")[2] == ACCEPTED for name in properties)
    held = _held(before, io) if anew or at is None else int(at.files, 16)
    files = _text(held + sum(map(mark_of, added)) - sum(map(mark_of, removed)))
    since = before
    while since is not None and CommitDigest.of(since) is None:
        since = None if since.parent_snapshot_id is None else metadata.snapshot_by_id(since.parent_snapshot_id)
    return proof_properties(snapshot, files, since, properties, checksums_of(added))


def proof_properties(
    snapshot: int, files: str, since: Snapshot | None, properties: Mapping[str, str], checksums: str = ""
) -> dict[str, str]:
    """Compute the digest properties of a commit from the digest `files` of all files in the table.

    The digest also covers the commit's `properties` and `checksums`. `since` is the last earlier snapshot with a
    digest, or None if the new commit begins the chain.
    """
    before = CommitDigest.of(since)
    link = link_of("" if before is None else before.link, snapshot, files, properties, checksums)
    digest = CommitDigest(link, files, None if before is None or since is None else since.snapshot_id)
    return {DIGEST: str(digest), **({CHECKSUMS: checksums} if checksums else {})}


def _held(snapshot: Snapshot | None, io: FileIO) -> int:
    return 0 if snapshot is None else int(digest_of(manifest_files(snapshot.manifests(io), io)), 16)


def checksums_of(files: Iterable[DataFile]) -> str:
    """Return the known checksums of a commit's files as text, in the form `PREFIX:CHECKSUM PREFIX:CHECKSUM`.

    A file's prefix is the beginning of its name (`name_prefix`). If there are more than `MOST_CHECKSUMS` checksums, the
    text has the number of checksums, followed by one checksum of all the files (`combined_checksum`).
    """
    known = {file.file_path.rpartition("/")[2]: checksum for file in files if (checksum := checksum_of(file))}
    if len(known) > MOST_CHECKSUMS:
        return f"{len(known)} {combined_checksum(known)}"
    return " ".join(f"{name_prefix(name)}:{checksum}" for name, checksum in sorted(known.items()))


def name_prefix(name: str) -> str:
    """Return the random beginning of a file's name, under which the file's checksum is recorded."""
    return name[:13]


def combined_checksum(checksums: Mapping[str, str]) -> str:
    """Combine the checksums of many files into one checksum; `checksums` maps file names to checksums."""
    return sha256(json.dumps(sorted(checksums.items())).encode()).hexdigest()[: _BITS // 4]


def keep_checksum(file: DataFile, checksum: str) -> None:
    """Attach the checksum of a file's bytes to the file object, so that the commit can record the checksum."""
    setattr(file, _CHECKSUM, checksum)


def checksum_of(file: DataFile) -> str | None:
    """Return the checksum that was attached to a file, or None if no checksum was attached.

    A checksum was attached if this process, or a Python worker of Spark's executors, wrote the file.
    """
    return getattr(file, _CHECKSUM, None)
