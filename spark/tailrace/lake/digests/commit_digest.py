"""The digest that each of our commits carries, by which an audit tells what was changed by another hand.

A digest has two parts. `files` is a digest of all data and delete files that the table holds after the commit: the sum
of a hash of each, so that a commit adds its own to that of the commit before. `link` is a hash of the commit's id, its
properties, its `files` and the link of the commit before: a chain, which breaks where a commit was put in, taken out,
replaced, or had a property changed. What Spark commits has no digest, as Spark names its files by itself; the next
commit of this process counts the files that there are, and names the last commit that had a digest.

The digest is a property of the snapshot whose name does not begin as our other properties do: a commit beside the
stream repeats those of the commit before, and is not to repeat this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

DIGEST = "tailrace-digest"
"""The name of the snapshot's property with the commit's digest."""

CHECKSUMS = "tailrace-checksums"
"""The name of the snapshot's property with the checksums of the files that the commit added."""

ACCEPTED = "accepted"
"""Our property of a commit with the foreign commits before it that somebody accepted (`commit.commit_history`)."""

MOST_CHECKSUMS = 32
"""The maximum number of files whose checksums a commit has one by one; of more it has one of them all."""

_BITS = 128
"""The bits of a digest: metadata has one for each snapshot that is kept, and is written with each commit."""

_CHECKSUM = "checksum"
"""The attribute of a `DataFile` with the checksum of its bytes, which Iceberg has no field for."""


@dataclass(frozen=True)
class CommitDigest:
    """The digest of a commit; `since` is the last snapshot before it that has one, None where the chain begins."""

    link: str
    files: str
    since: int | None

    @classmethod
    def parsed(cls, text: str) -> CommitDigest | None:
        """Read a digest off its text; None where the text is none.

        >>> CommitDigest.parsed("ab cd 7"), CommitDigest.parsed("ab cd -"), CommitDigest.parsed("ab")
        (CommitDigest(link='ab', files='cd', since=7), CommitDigest(link='ab', files='cd', since=None), None)
        """
        parts = text.split(" ")
        if len(parts) != 3 or not (parts[2] == "-" or parts[2].isdigit()):
            return None
        return cls(parts[0], parts[1], None if parts[2] == "-" else int(parts[2]))

    @classmethod
    def of(cls, snapshot: Snapshot | None) -> CommitDigest | None:
        """Read the digest of a snapshot; None where it has none."""
        text = digest_text(snapshot)
        return None if text is None else cls.parsed(text)

    def __str__(self) -> str:
        return f"{self.link} {self.files} {'-' if self.since is None else self.since}"


def digest_text(snapshot: Snapshot | None) -> str | None:
    """Return the text of a snapshot's digest; None where it has none."""
    if snapshot is None or snapshot.summary is None:
        return None
    found = snapshot.summary.additional_properties.get(DIGEST)
    return None if found is None else str(found)


def linked(before: str, snapshot: int, files: str, properties: Mapping[str, str], checksums: str) -> str:
    """Compute the link of a commit from the link of the commit before, which is empty where the chain begins."""
    said = json.dumps([before, snapshot, files, sorted(properties.items()), checksums])
    return sha256(said.encode()).hexdigest()[: _BITS // 4]


def mark_of(file: DataFile) -> int:
    """Compute the part of a file in `CommitDigest.files`, by its name, size and number of rows.

    The folder is left out: a lake that is moved keeps its digests.
    """
    name = file.file_path.rpartition("/")[2]
    return int.from_bytes(sha256(f"{name}\n{file.file_size_in_bytes}\n{file.record_count}".encode()).digest())


def digest_of(files: Iterable[DataFile]) -> str:
    """Compute the digest of all files of a table."""
    return _text(sum(map(mark_of, files)))


def _text(number: int) -> str:
    return f"{number % (1 << _BITS):0{_BITS // 4}x}"


def listed(manifests: Iterable[ManifestFile], io: FileIO) -> Iterator[ManifestEntry]:
    """Yield the entries of manifests, deletes included, whose files are in the table."""
    for manifest in manifests:
        yield from manifest.fetch_manifest_entry(io)


def listed_files(manifests: Iterable[ManifestFile], io: FileIO) -> Iterator[DataFile]:
    """Yield the files, deletes included, that manifests list and that are in the table."""
    for entry in listed(manifests, io):
        yield entry.data_file


def made(
    metadata: TableMetadata,
    parent: int | None,
    snapshot: int,
    properties: Mapping[str, str],
    io: FileIO,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
) -> dict[str, str]:
    """Make the properties by which a commit of these files proves itself; `properties` are its own.

    The files of the commit before are taken from its digest, or read off its manifests where it has none. Where the
    commit accepts foreign ones, that digest may be forged.
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
    return proof(snapshot, files, since, properties, checksums_of(added))


def proof(
    snapshot: int, files: str, since: Snapshot | None, properties: Mapping[str, str], checksums: str = ""
) -> dict[str, str]:
    """Make the properties by which a commit proves itself, from the digest of its files."""
    before = CommitDigest.of(since)
    link = linked("" if before is None else before.link, snapshot, files, properties, checksums)
    digest = CommitDigest(link, files, None if before is None or since is None else since.snapshot_id)
    return {DIGEST: str(digest), **({CHECKSUMS: checksums} if checksums else {})}


def _held(snapshot: Snapshot | None, io: FileIO) -> int:
    return 0 if snapshot is None else int(digest_of(listed_files(snapshot.manifests(io), io)), 16)


def checksums_of(files: Iterable[DataFile]) -> str:
    """Write the checksums of the files of a commit that have one, each with the beginning of the file's name.

    Of more than `MOST_CHECKSUMS` files it is one number of them all (`together`).
    """
    known = {file.file_path.rpartition("/")[2]: checksum for file in files if (checksum := checksum_of(file))}
    if len(known) > MOST_CHECKSUMS:
        return f"{len(known)} {together(known)}"
    return " ".join(f"{known_by(name)}:{checksum}" for name, checksum in sorted(known.items()))


def known_by(name: str) -> str:
    """Return the beginning of a file's name, which is random, by which its checksum is found."""
    return name[:13]


def together(checksums: Mapping[str, str]) -> str:
    """Compute one checksum of those of many files, by name."""
    return sha256(json.dumps(sorted(checksums.items())).encode()).hexdigest()[: _BITS // 4]


def keep_checksum(file: DataFile, checksum: str) -> None:
    """Keep the checksum of a file's bytes with the file, until a commit lists it."""
    setattr(file, _CHECKSUM, checksum)


def checksum_of(file: DataFile) -> str | None:
    """Return the checksum of a file that this process, or an executor's Python, has written; else None."""
    return getattr(file, _CHECKSUM, None)
