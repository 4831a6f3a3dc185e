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
"""The folders of this process, by process id (a forked process has its own folders) and parent folder."""


def process_folder(place: Path | None = None) -> Path:
    """Return this process's folder in `place`, or in the temporary folder; the folder is removed when the process ends.

    The first call also removes the folders of this user's dead processes. The call keeps the folders of living
    processes, because a living process holds a lock in its folder. The operating system releases the lock when the
    process ends in any way.
    """
    inside = Path(tempfile.gettempdir()) if place is None else place
    key = os.getpid(), inside
    # A cleaner of temporary folders may have removed the folder.
    if key not in _made or not _made[key].is_dir():
        inside.mkdir(parents=True, exist_ok=True)
        _remove_left(inside)
        _made[key] = _new(inside)
    return _made[key]


def _new(inside: Path) -> Path:
    while True:
        # Another process may find the new folder before it is locked, and remove it. In this case another folder is
        # made.
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        if _hold(folder, os.O_CREAT) is not None:
            atexit.register(_remove_own, folder, os.getpid())
            return folder


def _hold(folder: Path, flags: int = 0) -> int | None:
    """Lock a folder, and return the lock file's descriptor.

    Returns None if another process holds the lock, or if the lock file does not exist.
    """
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
            # The lock file is removed last. If this process is killed before that, the next process removes the
            # remaining files.
            for one in [one for one in folder.iterdir() if one.name != _LOCK]:
                shutil.rmtree(one, ignore_errors=True) if one.is_dir() and not one.is_symlink() else one.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove_own(folder: Path, owner: int) -> None:
    # A process that was forked from the owner also runs this function when it ends.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
