"""Sessions for tests: Spark's, of one JVM with every jar that is here, and those of runs (`session_protocol`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb.session import DuckSession
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.engines.spark.cluster import ClusterSession


def session(settings: Settings, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session on the lake of `settings`, in a JVM that reads Kafka where its jars are here."""
    from tailrace.engines.spark.session import open_session
    from tailrace.toolchain import missing_jars

    groups = ("lake",) if missing_jars(settings.jars, ["kafka"]) else ("lake", "kafka")
    return open_session(settings, extra=extra, groups=groups)


def cluster(spark: SparkSession, lake: Lake | None = None) -> ClusterSession:
    """What a run on Spark asks, in a session that is there."""
    from tailrace.engines.spark.cluster import ClusterSession

    return ClusterSession(spark, lake or Lake(Settings()), EngineChoice(Engine.SPARK, "of the test"), small=False)


def in_process(lake: Lake | None = None) -> DuckSession:
    """What a run on DuckDB asks."""
    return DuckSession(lake or Lake(Settings(memory="1GB")), EngineChoice(Engine.DUCKDB, "of the test"))
