"""Check a table's data files: each file must exist and have its recorded size.

With `--deep`, each file must also have exactly the bytes that were written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.archive import commits
from tailrace.lake.digests.commit_digest import (
    CHECKSUMS,
    combined_checksum,
    manifest_entries,
    manifest_files,
    manifests_of,
    name_prefix,
)
from tailrace.lake.digests.summed_output import checksum_text
from tailrace.verify.tampering.audit_result import SHOWN, Check

AT_ONCE = 8
"""The number of files that are checked in parallel. On object storage, each check is one request."""

PIECE = 1 << 20
"""The size, in bytes, of the pieces in which a file is read."""


@dataclass(frozen=True)
class _Read:
    """The result of reading a file: its checksum, and a description of the fault if the file is damaged."""

    checksum: str
    fault: str | None


def files_are_whole(lake: Lake, tables: Iterable[str], *, deep: bool = False) -> Check:
    """Check that all files of some tables exist with their recorded size.

    If `deep` is True, also check that the files have the bytes that were written. The bytes of a file that Spark wrote
    are checked with the checksums of its Parquet pages, if Spark wrote such checksums.
    """
    faults, count, summed = list[str](), 0, 0
    for table in tables:
        loaded = lake.table(table)
        entries = list(manifest_entries(manifests_of(loaded), loaded.io))
        files = [entry.data_file for entry in entries]
        count += len(files)
        wrong = _tried(loaded.io, files, _size_fault)
        if wrong:
            # If a compaction and an expiry ran during this check, the expiry may have removed files that the check
            # could not find. Files that are not in the table's current snapshot are therefore not faults.
            current = lake.table(table)
            there = {file.file_path for file in manifest_files(manifests_of(current), current.io)}
            wrong = {path: fault for path, fault in wrong.items() if path in there}
        if deep:
            known = _known(lake, table)
            deeper, own = _deep_faults(
                loaded.io, [one for one in entries if one.data_file.file_path not in wrong], known
            )
            wrong |= deeper
            summed += own
        faults += (f"{table}: {path.rpartition('/')[2]} {fault}" for path, fault in wrong.items())
    found = "; ".join(faults[:SHOWN]) + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
    detail = f"{count:,} files" + (f", {summed:,} of them by the checksum of their writing" if deep else ", by size")
    return Check("files are there and whole" if deep else "files are there", not faults, found or detail)


def _tried(io: FileIO, files: Iterable[DataFile], fault: Callable[[FileIO, DataFile], str | None]) -> dict[str, str]:
    """Check files in parallel with the function `fault`.

    The result is a dict that maps the path of each faulty file to its fault.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        files = list(files)
        found = zip(files, pool.map(partial(fault, io), files), strict=True)
        return {file.file_path: wrong for file, wrong in found if wrong is not None}


def _size_fault(io: FileIO, file: DataFile) -> str | None:
    try:
        size = len(io.new_input(file.file_path))
    except OSError:
        return "is gone"
    return None if size == file.file_size_in_bytes else f"has {size:,} bytes in place of {file.file_size_in_bytes:,}"


@dataclass(frozen=True)
class _Known:
    """The recorded checksums of files: `each` has one checksum per file, and `many` has combined checksums.

    The keys of `each` are prefixes of file names. The keys of `many` are the snapshot ids of commits. A value of `many`
    is a pair: the number of files that the commit added, and one combined checksum of all these files.
    """

    each: Mapping[str, str]
    many: Mapping[int, tuple[int, str]]


def _known(lake: Lake, table: str) -> _Known:
    """Read the checksums that were recorded in the commits of a table."""
    each, many = dict[str, str](), dict[int, tuple[int, str]]()
    for commit in commits(lake, table).all:
        text = commit.proof.get(CHECKSUMS, "")
        if ":" in text:
            each |= {name: checksum for name, _, checksum in (one.partition(":") for one in text.split())}
        elif text:
            number, _, checksum = text.partition(" ")
            many[commit.snapshot] = int(number), checksum
    return _Known(each, many)


def _deep_faults(io: FileIO, entries: list[ManifestEntry], known: _Known) -> tuple[dict[str, str], int]:
    """Read files completely; return their faults, and how many of the files were compared with a recorded checksum.

    The faults are in a dict that maps a file's path to its fault.
    """
    faults, summed = dict[str, str](), 0
    lots: defaultdict[int, dict[str, str]] = defaultdict(dict)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for entry, read in zip(entries, pool.map(partial(_read, io), entries), strict=True):
            path = entry.data_file.file_path
            name = path.rpartition("/")[2]
            expected = known.each.get(name_prefix(name))
            if read.fault is not None:
                faults[path] = read.fault
            elif expected is not None and read.checksum != expected:
                faults[path] = "has other bytes than were written"
            elif expected is None and (commit := entry.snapshot_id or 0) in known.many:
                lots[commit][name] = read.checksum
            summed += expected is not None
    for snapshot, files in lots.items():
        number, expected = known.many[snapshot]
        if len(files) == number:
            summed += number
            if combined_checksum(files) != expected:
                faults[f"commit {snapshot}"] = f"has other bytes than were written in one of its {number:,} files"
    return faults, summed


def _read(io: FileIO, entry: ManifestEntry) -> _Read:
    """Read a whole file; return its checksum, and a description of the fault if the file is damaged."""
    file, number = entry.data_file, 0
    try:
        with io.new_input(file.file_path).open() as stream:
            while some := stream.read(PIECE):
                number = crc32(some, number)
        fault = _parquet_fault(io, file) if file.file_format == FileFormat.PARQUET else None
    except OSError as error:
        return _Read("", f"cannot be read: {error}")
    return _Read(checksum_text(number), fault)


def _parquet_fault(io: FileIO, file: DataFile) -> str | None:
    """Read all pages of a Parquet file and verify the pages' checksums; return the fault, or None if there is none."""
    try:
        with io.new_input(file.file_path).open() as stream:
            parquet = pq.ParquetFile(stream, page_checksum_verification=True)
            rows = sum(batch.num_rows for batch in parquet.iter_batches())
    except (pa.ArrowException, OSError) as error:
        return f"cannot be read: {str(error).splitlines()[0]}"
    return None if rows == file.record_count else f"has {rows:,} rows in place of {file.record_count:,}"
