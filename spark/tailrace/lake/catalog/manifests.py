"""Make pyiceberg cache its readers for Avro schemas; by default, pyiceberg builds a reader again for each manifest.

A table that a stream writes has one manifest for each epoch, and all its manifests have the same schema. Parsing a
manifest's schema and resolving it against the reader's schema took six sevenths of the time for planning a scan of such
a table. A reader has no state, so all files and threads can share a reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, wraps
from threading import Lock
from typing import Any

from cachetools import LRUCache, cached
from pyiceberg.avro import file as avro
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

MOST = 64
"""The maximum number of cached schemas and readers. Each table that a process reads needs a few schemas and readers."""


def remember_readers() -> None:
    """Make this process parse and resolve each manifest schema only once; a second call has no effect."""
    # The type is `Any` because the replacement functions have other types than pyiceberg's functions.
    own: Any = avro
    if own.AvroFileHeader.get_schema is _schema:
        return
    own.AvroFileHeader.get_schema = _schema
    own.resolve_reader = _once_each(own.resolve_reader)
    own.construct_reader = _once_each(own.construct_reader)


_parsed_anew = avro.AvroFileHeader.get_schema


def _schema(header: avro.AvroFileHeader) -> Schema:
    text = header.meta.get("avro.schema")
    # If a file has no schema, pyiceberg's own function is called, which rejects the file.
    return _parsed_anew(header) if text is None else _parsed(text)


@lru_cache(MOST)
def _parsed(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _once_each(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that takes schemas and types, so that the function runs only once for each set of argument
    objects.
    """

    # The cache also refers to the arguments. So Python does not reuse the `id()` of a schema while the key has it.
    @cached(LRUCache(MOST), key=_identity, lock=Lock())
    def remembered(*args: Any) -> tuple[tuple[Any, ...], Any]:
        return args, resolve(*args)

    @wraps(resolve)
    def resolved(*args: Any) -> Any:
        return remembered(*args)[1]

    return resolved


def _identity(*args: Any) -> tuple[object, ...]:
    """Return a key for schemas and types. Two schemas have the same key only if they are the same object.

    Comparing the contents of two schemas would take as long as resolving the schemas.
    """
    return tuple(tuple(one.items()) if isinstance(one, dict) else id(one) for one in args)
