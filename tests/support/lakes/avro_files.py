"""Avro container files as tests need them: of bodies that are there, in blocks of any size, with any codec."""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.support.services.schema_registry import avro_body

MARKER = bytes(range(16))
HEADER = {"type": "map", "values": "bytes"}


def deflated(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data)) + zlib.crc32(data).to_bytes(4, "big")


PACKINGS: Mapping[str, Any] = {
    "null": bytes, "deflate": deflated, "snappy": snappy, "bzip2": bz2.compress, "xz": lzma.compress,
    "zstandard": lambda data: bytes(pa.Codec("zstd").compress(data)),
}  # fmt: skip


def long(number: int) -> bytes:
    return avro_body({"type": "long"}, number)


def block(count: int, packed: bytes) -> bytes:
    return long(count) + long(len(packed)) + packed + MARKER


def container(schema: Any, bodies: Sequence[bytes], codec: str = "null", per_block: int = 100) -> bytes:
    """Write a file with these records, which are encoded already."""
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    made = b"Obj\x01" + avro_body(HEADER, meta) + MARKER
    for start in range(0, len(bodies), per_block):
        some = bodies[start : start + per_block]
        made += block(len(some), PACKINGS[codec](b"".join(some)))
    return made
