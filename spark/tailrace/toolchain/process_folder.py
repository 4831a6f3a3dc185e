"""Provide a private folder that is removed at the end of its process; after a kill, the next process removes it."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

_PREFIX = "tailrace-"
_LOCK = ".lock"

_made: dict[tuple[int, Path], Path] = {}
"""The folders of this process, by process id (a forked process has its own folders) and place."""


def process_folder(place: Path | None = None) -> Path:
    """Return this process's folder in `place`, or in the temporary folder; it is removed at the process's end.

    The first call also removes the folders of this user's dead processes. A living process holds a lock in its folder,
    which the system frees however the process ends, so folders of living processes stay.
    """
    inside = Path(tempfile.gettempdir()) if place is None else place
    key = os.getpid(), inside
    # A cleaner of temporary folders may have removed it.
    if key not in _made or not _made[key].is_dir():
        inside.mkdir(parents=True, exist_ok=True)
        _remove_left(inside)
        _made[key] = _new(inside)
    return _made[key]


def _new(inside: Path) -> Path:
    while True:
        # Another process may find the new folder before it is locked, and remove it. Then another folder is made.
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        if _hold(folder, os.O_CREAT) is not None:
            atexit.register(_remove_own, folder, os.getpid())
            return folder


def _hold(folder: Path, flags: int = 0) -> int | None:
    """Take the lock of a folder, and return its file; None if another process has it, or if it does not exist."""
    try:
        file = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file), os.lstat(folder / _LOCK)):
            return file
    except OSError:
        pass
    os.close(file)
    return None


def _remove_left(inside: Path) -> None:
    for folder in inside.glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and (lock := _hold(folder)) is not None:
            # The lock is removed last, so that after a kill the next process removes the rest.
            for one in [one for one in folder.iterdir() if one.name != _LOCK]:
                shutil.rmtree(one, ignore_errors=True) if one.is_dir() and not one.is_symlink() else one.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove_own(folder: Path, owner: int) -> None:
    # A process forked from the owner also runs this at its end.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
