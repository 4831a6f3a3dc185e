"""Say in one line why a stream failed, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
from py4j.protocol import Py4JJavaError

from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.fold.fold_group import StreamError
from tailrace.ingest.sources import Source
from tailrace.lake.commit.lease import Lease
from tailrace.lake.metadata.commit_times import refusal
from tailrace.lake.schema.lake_errors import CatalogError, FencedError
from tailrace.model.base.errors import TailraceError


def explained(error: Exception, leases: Sequence[Lease], sources: Mapping[str, Source]) -> TailraceError:
    """Turn an error of Spark or DuckDB into the stream's own; `leases` are those of the logs that the stream lands."""
    try:
        # A stream that was fenced off may find its checkpoint gone before it has an epoch.
        for lease in leases:
            lease.check()
    except (FencedError, CatalogError) as cause:
        # A catalog that does not answer now is what the engine failed at, and says it better.
        return cause
    if isinstance(error, duckdb.Error):
        error = EngineError.of(error)
    message = _root(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    text = refusal(message) or message.split("\n", 1)[0]
    which = " and ".join(f"log {log} from {source}" for log, source in sources.items())
    return StreamError(
        f"the stream of {which} failed: {text}; nothing that was published is lost: "
        "mend what it names and start the stream again, or look into the driver's log"
    )


def _root(thrown: Any) -> str:
    """Write what a Java exception came of: Spark wraps it in others that say nothing."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.toString())
