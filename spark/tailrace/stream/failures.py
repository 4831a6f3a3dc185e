"""Explain in one line why a stream failed, and what the user can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
from py4j.protocol import Py4JJavaError

from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.folders.folder_changes import plain_name
from tailrace.ingest.folders.unreadable_files import read_failure
from tailrace.ingest.sources import Files, Source
from tailrace.lake.commit.lease import Lease
from tailrace.lake.metadata.commit_times import explain_refusal
from tailrace.lake.schema.lake_errors import CatalogError, FencedError
from tailrace.model.base.errors import TailraceError


def explained(error: Exception, leases: Sequence[Lease], sources: Mapping[str, Source]) -> TailraceError:
    """Convert an error of Spark or DuckDB to a Tailrace error; `leases` are the leases of the stream's logs."""
    try:
        # Check the leases first: if another stream has taken over the lease and the checkpoint, that is the true cause
        # of the error, even before this stream's first epoch.
        for lease in leases:
            lease.check()
    except (FencedError, CatalogError) as cause:
        # The engine failed because the catalog does not answer, or because the stream has lost its lease. The error of
        # the lease check is returned because it describes this cause more clearly than the engine's error.
        return cause
    if isinstance(error, duckdb.Error):
        error = EngineError.of(error)
    message = _reason(error)
    text = explain_refusal(message) or message.split("\n", 1)[0]
    which = " and ".join(f"log {log} from {source}" for log, source in sources.items())
    return StreamError(
        f"the stream of {which} failed: {text}; nothing that was published is lost: "
        "mend what it names and start the stream again, or look into the driver's log"
    )


def reads_source(error: BaseException, sources: Iterable[Source]) -> bool:
    """Return True if the error occurred while a file of one of these sources was read."""
    failure = read_failure(error)
    folders = [plain_name(source.folder) for source in sources if isinstance(source, Files)]
    return failure is not None and any(plain_name(failure.file).startswith(folder) for folder in folders)


def _reason(error: Exception) -> str:
    """Return a description of the root cause of an error, or of the file that could not be read.

    Spark wraps the root cause in errors without a message.
    """
    if failure := read_failure(error):
        return f"{failure.file} cannot be read: {failure.reason}"
    if not isinstance(error, Py4JJavaError):
        return str(error)
    thrown: Any = error.java_exception
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.toString())
