"""Find files in a landing folder that a stream does not read or reads twice: changed, moved and hidden files (rule X6).

A stream identifies a file by its name, and reads each file once. So the stream never reads lines that are appended to a
file later, and it reads a file again if the file is moved within the folder. Spark's checkpoint contains the
modification time that each file had when Spark first listed it; a new listing of the folder shows the current
modification time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from pyarrow import fs

from tailrace.ingest.folders.file_names import is_hidden
from tailrace.ingest.sources import file_system

_HERE = r"/|file:|(?!\w+:)"
_S3 = r"s3[an]?://"


@dataclass(frozen=True)
class Listing:
    """The readable files of a folder with their modification times, and the number of hidden files in the folder.

    Modification times are in milliseconds.
    """

    times: Mapping[str, int]
    hidden: int = 0


@dataclass(frozen=True)
class FolderChanges:
    """The names of files that were changed after they were read, and of files that were moved.

    An item of `moved` is a pair of the old name and the new name.
    """

    changed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()


def can_list(folder: str) -> bool:
    """Return True if this process can list a folder without Spark: the folder is on this machine or in S3."""
    return re.match(f"{_HERE}|{_S3}", folder) is not None


def list_files(folder: str) -> Listing:
    """List the files of a folder, by names in the form that `plain_name` returns. Raises `OSError` if the listing
    fails.
    """
    times, hidden = dict[str, int](), 0
    local = re.match(_HERE, folder) is not None
    for name, passed, written in _here(folder) if local else _in_s3(folder):
        if passed:
            hidden += 1
        else:
            times[name] = written // 10**6
    return Listing(times, hidden)


def _here(folder: str) -> Iterator[tuple[str, bool, int]]:
    """For each file of a local folder, yield its name, whether it is hidden, and its modification time; skip links."""
    left = [(os.path.abspath(file_system(folder)[1]), False)]
    while left:
        place, below = left.pop()
        with suppress(FileNotFoundError):
            for entry in os.scandir(place):
                hidden = below or is_hidden(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    left.append((entry.path, hidden))
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield entry.path, hidden, entry.stat(follow_symlinks=False).st_mtime_ns


def _in_s3(folder: str) -> Iterator[tuple[str, bool, int]]:
    files, root = file_system(folder)
    scheme, root = folder.partition("://")[0], root.rstrip("/")
    for info in files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True)):
        if info.type == fs.FileType.File:
            below = info.path[len(root) + 1 :]
            yield f"{scheme}://{info.path}", any(map(is_hidden, below.split("/"))), info.mtime_ns or 0


def find_changes(read: Mapping[str, int], there: Mapping[str, int]) -> FolderChanges:
    """Compare the files that a stream has read, in the order of reading, with the files that are now in the folder.

    `read` and `there` map the name of a file to its modification time in milliseconds.

    The time 0 means that the modification time is unknown. A file counts as moved if it is gone and exactly one file
    that is new in the folder has the same modification time. In addition, the two files must have the same base name,
    or the time must not be a whole second.

    >>> find_changes({"/a": 1001, "/b": 1002, "/c": 0}, {"/a": 1001, "/b": 1500, "/c": 7, "/d": 1002})
    FolderChanges(changed=('/b',), moved=())
    >>> find_changes({"/a": 1001, "/old": 1002}, {"/a": 1001, "/new": 1002})
    FolderChanges(changed=(), moved=(('/old', '/new'),))
    """
    changed = tuple(sorted(name for name, at in there.items() if read.get(name, 0) not in (0, at)))
    gone = dict[int, list[str]]()
    for name, at in read.items():
        if at and name not in there:
            gone.setdefault(at, []).append(name)
    if not gone:
        return FolderChanges(changed)
    place = {name: number for number, name in enumerate(read)}
    found = dict[int, list[str]]()
    for name, at in there.items():
        if at in gone:
            found.setdefault(at, []).append(name)
    moved = []
    for at, names in found.items():
        before, now = gone[at][0], names[0]
        alone = len(names) == len(gone[at]) == 1 and place.get(now, len(place)) > place[before]
        if alone and (at % 1000 or os.path.basename(before) == os.path.basename(now)):
            moved.append((before, now))
    return FolderChanges(changed, tuple(sorted(moved)))


def plain_name(path: str) -> str:
    """Convert Spark's name of a file, which is not percent-encoded, to the name in a listing of the folder.

    >>> plain_name("file:/drop/a b.json"), plain_name("s3a://bucket/a")
    ('/drop/a b.json', 's3a://bucket/a')
    """
    return re.sub(r"^file:/+", "/", path)


def without_links(folder: str, files: Sequence[str]) -> list[str]:
    """Leave out files whose path below the folder contains a symbolic link, so that each file is read only once.

    The folder itself may be a symbolic link.
    """
    if not re.match(_HERE, folder):
        return list(files)
    root = os.path.abspath(file_system(folder)[1])

    @cache
    def linked(path: str) -> bool:
        below = os.path.commonpath((root, path)) == root != path
        return below and (os.path.islink(path) or linked(os.path.dirname(path)))

    return [file for file in files if not linked(file_system(file)[1])]
