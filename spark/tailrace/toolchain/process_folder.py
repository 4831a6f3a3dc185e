"""The folder in which a process keeps what goes with it: only its user may look in, and no kill leaves it for good."""

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
"""The folders of this process, by its id (a process that was forked has folders of its own) and where they are."""


def process_folder(place: Path | None = None) -> Path:
    """Return this process's folder in `place`, or in the temporary folder: made once, and removed as the process ends.

    The first call also removes the folders that dead processes of this user left there. A process holds a lock in its
    folder for as long as it lives, which the system takes from it however it ends, so no living one's is removed.
    """
    inside = Path(tempfile.gettempdir()) if place is None else place
    key = os.getpid(), inside
    # Whoever clears temporary folders may have taken it away.
    if key not in _made or not _made[key].is_dir():
        inside.mkdir(parents=True, exist_ok=True)
        _remove_left(inside)
        _made[key] = _new(inside)
    return _made[key]


def _new(inside: Path) -> Path:
    while True:
        # Others find a folder at once, and one without a holder is removed: then another is made.
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
        if _hold(folder, os.O_CREAT) is not None:
            atexit.register(_remove_own, folder, os.getpid())
            return folder


def _hold(folder: Path, flags: int = 0) -> int | None:
    """Take the lock of a folder, and return its file; None where another process has it, or there is none."""
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
            # The lock goes last: whoever is killed meanwhile leaves what the next one removes.
            for one in [one for one in folder.iterdir() if one.name != _LOCK]:
                shutil.rmtree(one, ignore_errors=True) if one.is_dir() and not one.is_symlink() else one.unlink()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _remove_own(folder: Path, owner: int) -> None:
    # A process that was forked from the owner ends like it.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
