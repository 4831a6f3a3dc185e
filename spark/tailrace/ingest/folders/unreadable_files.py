"""Find which of an epoch's files cannot be read, so that they are rejected as a whole and all others go on (X7).

Nothing is looked at before reading fails: Spark then names a file. Whether the file is at fault is asked of the file
alone. Where its bytes come and Spark reads no records out of them, twice, it is; where its bytes do not come, what
holds the files is at fault, and the epoch fails.
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
"""The letters of a reason that are kept."""


@dataclass(frozen=True)
class ReadFailure:
    """A file that Spark could not read, by the name that it says, and the reason."""

    file: str
    reason: str
    environment: bool = False
    """Whether the reason is the network's or the store's, not the file's."""


def read_failure(error: BaseException) -> ReadFailure | None:
    """Find the file that Spark says it could not read behind an error; None where the error is another one."""
    causes = list(_causes(error))
    for place, thrown in enumerate(causes):
        if named := _NAMED.search(str(thrown.toString())):
            below = causes[place + 1 :]
            said = [str(one.getMessage() or one.getClass().getSimpleName()).split("\n", 1)[0] for one in below]
            # An exception often begins with the words of its cause, or is no more than them.
            told = [text for at, text in enumerate(said) if not any(text.endswith(later) for later in said[at + 1 :])]
            reason = ": ".join(told)[:_LONGEST] or "no reason is given"
            environment = any(_ENVIRONMENT.search(str(one.getClass().getName())) for one in below)
            return ReadFailure(_shortened(unquote(named[1] or named[2])), reason, environment)
    return None


def unreadable_files(
    spark: SparkSession, source: Files, log: Log, files: Sequence[str], error: BaseException, *, all_of_them: bool
) -> dict[str, str]:
    """Find the files of an epoch that cannot be read, each with the reason; none where the error is of no file.

    Looks at the file that the error names, or at `all_of_them`. Raises `SourceError` where a file's bytes do not come.
    """
    failure = read_failure(error)
    if failure is None:
        return {}
    asked = list(files) if all_of_them else [file for file in files if _shortened(file) == failure.file]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="unreadable") as pool:
        reasons = pool.map(partial(_reason, spark, source, log), asked)
    return {file: reason for file, reason in zip(asked, reasons, strict=True) if reason is not None}


def _reason(spark: SparkSession, source: Files, log: Log, file: str) -> str | None:
    """Say why a file by itself cannot be read; None where it can, or where the file is not at fault."""
    if gone := raw_fault(file):
        return gone
    try:
        _computed(read_unparsed(spark, source, log, file))
    except (Py4JJavaError, PySparkException) as error:
        failure = read_failure(error)
        if failure is None or failure.environment:
            return None
        # What could not be read may be gone by now, or the store with it.
        return raw_fault(file) or f"the file cannot be read as {source.format}: {failure.reason}"
    return None


def _computed(frame: DataFrame) -> None:
    """Compute every row and column of a frame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _causes(error: BaseException) -> Iterator[Any]:
    """List the Java exceptions behind an error, each before its cause."""
    seen: BaseException | None = error
    while seen is not None:
        thrown = seen.java_exception if isinstance(seen, Py4JJavaError) else getattr(seen, "_origin", None)
        while thrown is not None:
            yield thrown
            thrown = thrown.getCause()
        seen = seen.__cause__


def _shortened(name: str) -> str:
    """Write a file's name with one slash after its scheme, where a machine's own file may have three."""
    return re.sub(r"^file:/+", "file:/", name)


_NAMED = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.*?)\. (?: SQLSTATE|\w)"
    r"|\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE"
)
_ENVIRONMENT = re.compile(
    r"^java\.net\.|^javax\.net\.|^java\.nio\.file\.|^java\.io\.InterruptedIO|aws|amazon|AccessDenied|AccessControl|"
    r"OutOfMemory|ClosedByInterrupt"
)
"""The classes of errors of the network, of a store, or of a machine."""
