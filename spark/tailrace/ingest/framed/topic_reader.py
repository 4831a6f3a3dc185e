"""Choose the reader for topics with change records or with messages whose schemas are in a schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.ingest.sources import Kafka, Source, SourceError
from tailrace.model.logs.log import Log
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.ingest.framed.framed_messages import FramedMessages


def framed_reader(log: Log, source: Source, settings: Settings) -> FramedMessages | None:
    """Return the reader for a topic with change records or with registered schemas; return None for any other source.

    Raises `SourceError` if the settings name no registry, if a package is missing, or if the source of a log of changes
    is not a topic.
    """
    if not isinstance(source, Kafka):
        if log.signed:
            raise SourceError(f"the changes of {log.name} come from a topic: read them with --kafka")
        return None
    if log.messages == "json" and not log.signed:
        return None
    try:
        # The module is imported here because only topics with change records or registered schemas need its packages.
        from tailrace.ingest.framed.framed_messages import FramedMessages
        from tailrace.ingest.framed.schema_registry import SchemaRegistry
    except ImportError as error:
        what = f"the messages of log {log.name} need package {error.name}"
        raise SourceError(f"{what}: pip install 'tailrace[kafka]'") from error
    return FramedMessages(log, None if log.messages == "json" else SchemaRegistry(settings))
