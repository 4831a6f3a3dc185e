"""Find the unreadable files of an epoch, so that each is rejected as a whole and all other files are read (X7).

Nothing is examined before reading fails and Spark names a file. Then the file is read alone. If its bytes can be read,
but Spark twice finds no records in them, the file is at fault and is rejected. If its bytes cannot be read, the store
or the network is at fault, and the epoch fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.ingest.parsing import read_unparsed
from tailrace.ingest.sources import Files, raw_fault
from tailrace.model.logs.log import Log

_AT_ONCE = 4
_LONGEST = 300
"""The maximum length of a reason."""


@dataclass(frozen=True)
class ReadFailure:
    """A file that Spark could not read, by the name in Spark's error, and the reason."""

    file: str
    reason: str
    environment: bool = False
    """Whether the reason is the network's or the store's, not the file's."""


def read_failure(error: BaseException) -> ReadFailure | None:
    """Find the file that, according to an error of Spark's, could not be read; None for any other error."""
    causes = list(_causes(error))
    for place, thrown in enumerate(causes):
        if named := _NAMED.search(str(thrown.toString())):
            below = causes[place + 1 :]
            said = [str(one.getMessage() or one.getClass().getSimpleName()).split("\n", 1)[0] for one in below]
            # An exception's message often repeats the message of its cause.
            told = [text for at, text in enumerate(said) if not any(text.endswith(later) for later in said[at + 1 :])]
            reason = ": ".join(told)[:_LONGEST] or "no reason is given"
            environment = any(_ENVIRONMENT.search(str(one.getClass().getName())) for one in below)
            return ReadFailure(_shortened(unquote(named[1] or named[2])), reason, environment)
    return None


def unreadable_files(
    spark: SparkSession, source: Files, log: Log, files: Sequence[str], error: BaseException, *, all_of_them: bool
) -> dict[str, str]:
    """Find the unreadable files of an epoch, each with the reason; empty if the error is not about a file.

    Only the file that the error names is examined, or `all_of_them`. Raises `SourceError` if the bytes of a file cannot
    be read.
    """
    failure = read_failure(error)
    if failure is None:
        return {}
    asked = list(files) if all_of_them else [file for file in files if _shortened(file) == failure.file]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="unreadable") as pool:
        reasons = pool.map(partial(_reason, spark, source, log), asked)
    return {file: reason for file, reason in zip(asked, reasons, strict=True) if reason is not None}


def _reason(spark: SparkSession, source: Files, log: Log, file: str) -> str | None:
    """Say why a file is unreadable when read alone; None if it is readable, or not at fault."""
    if gone := raw_fault(file):
        return gone
    try:
        _computed(read_unparsed(spark, source, log, file))
    except (Py4JJavaError, PySparkException) as error:
        failure = read_failure(error)
        if failure is None or failure.environment:
            return None
        # Meanwhile the file may be gone, or the store may fail.
        return raw_fault(file) or f"the file cannot be read as {source.format}: {failure.reason}"
    return None


def _computed(frame: DataFrame) -> None:
    """Compute every row and column of a frame, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def _causes(error: BaseException) -> Iterator[Any]:
    """List the Java exceptions of an error, each before its cause."""
    seen: BaseException | None = error
    while seen is not None:
        thrown = seen.java_exception if isinstance(seen, Py4JJavaError) else getattr(seen, "_origin", None)
        while thrown is not None:
            yield thrown
            thrown = thrown.getCause()
        seen = seen.__cause__


def _shortened(name: str) -> str:
    """Write a local file's name with one slash after its scheme instead of three."""
    return re.sub(r"^file:/+", "file:/", name)


_NAMED = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.*?)\. (?: SQLSTATE|\w)"
    r"|\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE"
)
_ENVIRONMENT = re.compile(
    r"^java\.net\.|^javax\.net\.|^java\.nio\.file\.|^java\.io\.InterruptedIO|aws|amazon|AccessDenied|AccessControl|"
    r"OutOfMemory|ClosedByInterrupt"
)
"""Matches the classes of errors that the network, a store or the machine causes."""
