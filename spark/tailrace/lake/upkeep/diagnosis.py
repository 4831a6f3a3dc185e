"""Diagnose a library's error: a full disk, missing permissions, too little memory, a crashed JVM, or a damaged file.

Such errors come from Spark, DuckDB, Arrow, pyiceberg and SQLite, and each library has its own messages. An error is
recognized by error numbers and by words in its message and in the messages of its causes. If an error is not
recognized, the lake's files are checked for damage. An error without a diagnosis is a bug in Tailrace.
"""

from __future__ import annotations

import errno
import re
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from typing import Any

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import explain_refusal
from tailrace.lake.schema.lake_errors import CatalogError, DamagedError, FencedError, LakeError, MovedError
from tailrace.lake.upkeep.damage import find_damages
from tailrace.model.base.errors import TailraceError
from tailrace.settings import Settings, SettingsError


class MachineError(TailraceError, OSError):
    """The machine failed: a disk is full, a permission is missing, memory is too small, or a process was killed."""


_SAID = DamagedError | CatalogError | FencedError | MovedError | MachineError
"""The errors that need no diagnosis, because their messages already state what happened and how to correct it."""

_TEXTS: dict[str, str] = tomllib.loads(files(__package__).joinpath("diagnosis.toml").read_text("utf-8"))

_FULL = re.compile(r"no space left on device|disk is full|disk quota exceeded|not enough space", re.IGNORECASE)
_BARRED = re.compile(
    r"read-only file system|readonly database|permission denied|operation not permitted|accessdenied|access denied",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(r"java heap space|GC overhead limit|OutOfMemoryError|unable to create native thread")
_NO_ROOM = re.compile(r"^Out of Memory Error: |^DuckDB has no more room: ")
_ENDED = re.compile(r"Answer from Java side is empty|Java gateway process exited|Error while sending or receiving")
_PATH = re.compile(r"(?:file:)?(/[^\s'\":,;()\]]+)")


def diagnose(error: BaseException, settings: Settings | None) -> TailraceError | None:
    """Return an error that states what happened and how to correct it, or None if the error is not recognized.

    `settings` are the settings of the lake in which the work failed, or None if they could not be loaded.
    """
    chain = list(_chain(error))
    texts = [text for one in chain for text in _texts(one)]
    for cause, numbers, words in (
        ("full", (errno.ENOSPC, errno.EDQUOT), _FULL),
        ("barred", (errno.EROFS, errno.EACCES, errno.EPERM), _BARRED),
    ):
        for one in chain:
            text = next(iter(_texts(one)), "")
            if (isinstance(one, OSError) and one.errno in numbers) or words.search(text):
                lake = "the lake" if settings is None else str(settings.warehouse)
                return MachineError(_TEXTS[cause].format(place=_place(one, text) or lake, line=_line(text)))
    if (said := next(filter(None, map(explain_refusal, texts)), None)) is not None:
        return LakeError(said)
    if (said := next(filter(_NO_ROOM.search, texts), None)) is not None:
        return MachineError(_TEXTS["room"].format(line=_line(_NO_ROOM.sub("", said))))
    if any(isinstance(one, MemoryError) for one in chain) or any(map(_NO_MEMORY.search, texts)):
        return MachineError(_TEXTS["memory"].format(line=_line(texts[0])))
    if any(map(_of_a_dead_jvm, chain)):
        return MachineError(_TEXTS["ended"].format(line=_line(texts[0])))
    return None if settings is None else _damaged(settings)


def explain_error(error: Exception, settings: Settings | None = None) -> Exception:
    """Return the diagnosis of an error that a library caused, or the error itself if it has no diagnosis.

    If `settings` is None, the settings are taken from the environment.
    """
    if isinstance(error, TailraceError) and (isinstance(error, _SAID | ValueError) or not _foreign(error)):
        return error
    if settings is None:
        with suppress(SettingsError):
            settings = Settings()
    return diagnose(error, settings) or error


def _foreign(error: BaseException) -> bool:
    return any(not isinstance(one, TailraceError) for one in _chain(error))


def _damaged(settings: Settings) -> DamagedError | None:
    """Search the lake for damaged files; return an error for the first damaged file, or None if there is none."""
    # If the catalog itself does not respond, the search fails, and the original error is kept.
    with suppress(Exception):
        found = list(find_damages(Lake(settings, looks=True)))
        if found:
            one, *more = found
            return DamagedError(f"the {one.kind} of table {one.table}", one.file, one.found, len(more))
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each only once, beginning with the error itself."""
    seen, waiting = set[int](), [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the message of an error; for a Java error, yield the Java messages of the error and of its causes."""
    thrown: Any = getattr(error, "java_exception", None)
    if thrown is None:
        yield str(error)
        return
    # The JVM may have ended in the meantime; its messages can then no longer be read.
    with suppress(Exception):
        while thrown is not None:
            yield str(thrown.toString())
            thrown = thrown.getCause()


def _place(error: BaseException, text: str) -> str:
    """Return the path that an error or its message names, or an empty text if there is no path."""
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return error.filename
    found = _PATH.search(text)
    return found[1] if found else ""


def _line(text: str) -> str:
    """Return the first line of a message, cut after 300 characters."""
    return next(iter(text.strip().splitlines()), "")[:300]


def _of_a_dead_jvm(error: BaseException) -> bool:
    """Return True if an error means that the connection to Spark's JVM was lost."""
    if type(error).__module__.startswith("py4j") and not hasattr(error, "java_exception"):
        return True
    if _ENDED.search(str(error)):
        return True
    return isinstance(error, ConnectionError) and any(
        "py4j" in frame.filename for frame in traceback.extract_tb(error.__traceback__)
    )
