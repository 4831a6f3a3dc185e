"""Let versions of a table's metadata share their parts: pyiceberg copied every part of it twice in each commit.

A commit adds a snapshot to the snapshots that are already there. The parts of metadata, such as snapshots and schemas,
are immutable, so a copy has no use; only the lists and mappings that contain the parts must be copied. With a hundred
snapshots, copying the parts took half of the time of a commit.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder

T = TypeVar("T")

_PARTS = (Snapshot, SnapshotLogEntry, MetadataLogEntry, SnapshotRef, Schema, PartitionSpec, SortOrder)


@cache
def share_parts() -> None:
    """Make a deep copy of a part of metadata return the part itself."""
    for part in _PARTS:
        assert part.model_config.get("frozen"), f"{part.__name__} may change"
        setattr(part, "__deepcopy__", _itself)  # noqa: B010


def _itself(part: T, memo: object = None) -> T:
    return part
