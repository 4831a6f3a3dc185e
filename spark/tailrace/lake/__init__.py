"""The lake's tables: their contracts, their commits, the lease, and reading the tables without a JVM."""

from typing import TYPE_CHECKING

from tailrace.model.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from tailrace.lake.read.open_table import open_table
    from tailrace.lake.read.query_views import extension
    from tailrace.lake.schema.lake_errors import LakeError
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "LakeError": "tailrace.lake.schema.lake_errors",
            "extension": "tailrace.lake.read.query_views",
            "open_table": "tailrace.lake.read.open_table",
        },
    )

__all__ = [
    "LakeError",
    "extension",
    "open_table",
]
