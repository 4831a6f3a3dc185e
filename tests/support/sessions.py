"""The Spark session of a test process: one JVM with every jar that is here, whichever test comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(settings: Settings, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session on the lake of `settings`, in a JVM that reads Kafka where its jars are here."""
    from tailrace.spark.session import open_session
    from tailrace.toolchain import missing

    groups = ("lake",) if missing(settings.jars, ["kafka"]) else ("lake", "kafka")
    return open_session(settings, extra=extra, groups=groups)
