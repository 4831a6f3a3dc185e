"""Find the unreadable files of an epoch; each such file is rejected as a whole, and all other files are read (rule X7).

Files are examined only after Spark has failed to read a file and has named the file in the error. Then the named file
is read alone. If its bytes can be read, but Spark fails again to read records from the file, the file itself is
damaged, and the file is rejected. If its bytes cannot be read, the cause is the store or the network, and the epoch
fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.ingest.compressed_text import HADOOPS, compression, read_through
from tailrace.ingest.parsing import read_unparsed
from tailrace.ingest.plain_files import typed_fault
from tailrace.ingest.sources import TYPED, Files, file_system, raw_fault
from tailrace.model.logs.log import Log

_AT_ONCE = 4
_LONGEST = 300
"""The maximum number of characters of the reason why a file cannot be read."""


@dataclass(frozen=True)
class ReadFailure:
    """A failure to read a file: the file's name, as Spark's error message states it, and the reason for the failure."""

    file: str
    reason: str
    environment: bool = False
    """Whether the failure was caused by the network or the store, and not by the file."""


def read_failure(error: BaseException) -> ReadFailure | None:
    """Return the failure if an error from Spark names a file that Spark could not read; return None for any other
    error.
    """
    if (found := _NAMED_BY_PYTHON.search(_texts(error))) is not None:
        return ReadFailure(_shortened(unquote(found[1])), found[2][:_LONGEST])
    causes = list(_causes(error))
    for place, thrown in enumerate(causes):
        if named := _NAMED.search(str(thrown.toString())):
            below = causes[place + 1 :]
            said = [str(one.getMessage() or one.getClass().getSimpleName()).split("\n", 1)[0] for one in below]
            # The message of an exception often repeats the message of the exception's cause, so repeated messages are
            # left out.
            told = [text for at, text in enumerate(said) if not any(text.endswith(later) for later in said[at + 1 :])]
            reason = ": ".join(told)[:_LONGEST] or "no reason is given"
            environment = any(_ENVIRONMENT.search(str(one.getClass().getName())) for one in below)
            return ReadFailure(_shortened(unquote(named[1] or named[2])), reason, environment)
    return None


def unreadable_files(
    spark: SparkSession, source: Files, log: Log, files: Sequence[str], error: BaseException, *, all_of_them: bool
) -> dict[str, str]:
    """Return the reason for each unreadable file of an epoch; the dict is empty if the error is not about a file.

    If `all_of_them` is True, all files of the epoch are examined; otherwise, only the file that the error names is
    examined. Raises `SourceError` if the bytes of a file cannot be read.
    """
    failure = read_failure(error)
    if failure is None:
        return {}
    asked = list(files) if all_of_them else [file for file in files if _shortened(file) == failure.file]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="unreadable") as pool:
        reasons = pool.map(partial(_reason, spark, source, log), asked)
    return {file: reason for file, reason in zip(asked, reasons, strict=True) if reason is not None}


def _reason(spark: SparkSession, source: Files, log: Log, file: str) -> str | None:
    """Read one file alone, and return the reason why the file is unreadable.

    Returns None if the file is readable, or if the cause of the failure is not the file.
    """
    if gone := raw_fault(file):
        return gone
    if source.format in TYPED:
        return typed_fault(log, source.format, file)
    if compression(file) not in ("", HADOOPS):
        return _damage(source, file)
    try:
        _computed(read_unparsed(spark, source, log, file))
    except (Py4JJavaError, PySparkException) as error:
        failure = read_failure(error)
        if failure is None or failure.environment:
            return None
        # Check the bytes again, because the file may have been removed or the store may have failed since the first
        # check.
        return raw_fault(file) or f"the file cannot be read as {source.format}: {failure.reason}"
    return None


def _damage(source: Files, file: str) -> str | None:
    """Decompress a file; return the reason why it is unreadable, or None if it is readable."""
    try:
        files, name = file_system(file)
        with files.open_input_file(name) as opened:
            read_through(file, opened)
    except (OSError, EOFError, pa.ArrowException) as error:
        return raw_fault(file) or f"the file cannot be read as {source.format}: {error}"[:_LONGEST]
    return None


def _computed(frame: DataFrame) -> None:
    """Compute every row and column of a frame, and discard the result."""
    frame.write.format("noop").mode("overwrite").save()


def _texts(error: BaseException) -> str:
    """Return the texts of an error and its causes; an error of Python code on an executor is part of such a text."""
    causes, seen = list[str](), cast("BaseException | None", error)
    while seen is not None:
        causes.append(str(seen))
        seen = seen.__cause__
    return "\n".join(causes)


def _causes(error: BaseException) -> Iterator[Any]:
    """Yield the Java exceptions that caused an error; every exception comes before its own cause."""
    seen: BaseException | None = error
    while seen is not None:
        thrown = seen.java_exception if isinstance(seen, Py4JJavaError) else getattr(seen, "_origin", None)
        while thrown is not None:
            yield thrown
            thrown = thrown.getCause()
        seen = seen.__cause__


def _shortened(name: str) -> str:
    """Return the name of a local file with one slash after the scheme, instead of three slashes."""
    return re.sub(r"^file:/+", "file:/", name)


_NAMED = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.*?)\. (?: SQLSTATE|\w)"
    r"|\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE"
)
_NAMED_BY_PYTHON = re.compile(r"UnreadableFileError: (\S+) is not read: (.*)")
_ENVIRONMENT = re.compile(
    r"^java\.net\.|^javax\.net\.|^java\.nio\.file\.|^java\.io\.InterruptedIO|aws|amazon|AccessDenied|AccessControl|"
    r"OutOfMemory|ClosedByInterrupt"
)
"""A regular expression for the names of the exception classes that report a failure of the network, store or
machine.
"""
