"""Have pyiceberg remember its readers of Avro schemas, which it works out anew for each manifest.

A table that a stream writes has a manifest an epoch, all of one schema; parsing that schema, and resolving it with the
schema that manifests are read by, took six sevenths of the time of planning such a table's files. Readers keep nothing
of what they read, so one reader serves all files and threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from pyiceberg.avro import file as avro
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

MOST = 64
"""The maximum number of schemas and readers that are remembered: a few for each table that a process looks at."""


def remember_readers() -> None:
    """Have this process parse and resolve each schema of manifests only once; a second call does nothing."""
    # Our replacements do not fit the types of pyiceberg's functions, hence `Any`.
    own: Any = avro
    if own.AvroFileHeader.get_schema is _schema:
        return
    own.AvroFileHeader.get_schema = _schema
    own.resolve_reader = _once_each(own.resolve_reader)
    own.construct_reader = _once_each(own.construct_reader)


_parsed_anew = avro.AvroFileHeader.get_schema


def _schema(header: avro.AvroFileHeader) -> Schema:
    text = header.meta.get("avro.schema")
    # pyiceberg refuses a file without a schema, as before.
    return _parsed_anew(header) if text is None else _parsed(text)


@lru_cache(MOST)
def _parsed(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _once_each(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of schemas and types so that it runs only once for the very same objects."""

    @lru_cache(MOST)
    def remembered(schemas: tuple[_Same, ...], types: tuple[tuple[tuple[int, Any], ...], ...]) -> Any:
        return resolve(*(one.value for one in schemas), *map(dict, types))

    @wraps(resolve)
    def resolved(*args: Any) -> Any:
        schemas = tuple(_Same(one) for one in args if not isinstance(one, dict))
        return remembered(schemas, tuple(tuple(one.items()) for one in args if isinstance(one, dict)))

    return resolved


class _Same:
    """A schema that equals only itself: comparing two schemas by their contents would take as long as resolving them.

    The schema is held, so that no other object gets its place in memory, and so its `id`.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
