"""Provide a private folder for this process. The folder is removed when the process ends.

If the process is killed, a later process removes the folder.
"""

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
"""The folders of this process, by process id and parent folder. A forked process has its own process id, so it has its
own folders.
"""


def process_folder(place: Path | None = None) -> Path:
    """Return this process's folder in `place`, or in the temporary folder; the folder is removed when the process ends.

    The first call also removes the folders of this user's processes that have ended. The folders of running processes
    are kept, because a running process holds a lock in its folder. The operating system releases the lock when the
    process ends, even if the process is killed.
    """
    inside = Path(tempfile.gettempdir()) if place is None else place
    key = os.getpid(), inside
    # Check that the folder still exists, because a service that cleans up temporary folders may have removed it.
    if key not in _made or not _made[key].is_dir():
        inside.mkdir(parents=True, exist_ok=True)
        _remove_left(inside)
        _made[key] = _new(inside)
    return _made[key]


def _new(inside: Path) -> Path:
    while True:
        # Another process may find and remove the new folder before this process has locked it. In this case, the loop
        # creates another folder.
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        if _hold(folder, os.O_CREAT) is not None:
            atexit.register(_remove_own, folder, os.getpid())
            return folder


def _hold(folder: Path, flags: int = 0) -> int | None:
    """Lock a folder, and return the file descriptor of its lock file.

    Returns None if another process holds the lock, or if the lock file does not exist and `flags` does not create it.
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
            # The lock file is removed last. If this process is killed while the lock file still exists, the next
            # process can remove the remaining files.
            for one in [one for one in folder.iterdir() if one.name != _LOCK]:
                shutil.rmtree(one, ignore_errors=True) if one.is_dir() and not one.is_symlink() else one.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove_own(folder: Path, owner: int) -> None:
    # Only the owner removes the folder, because a process that was forked from the owner also runs this function at its
    # end.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
