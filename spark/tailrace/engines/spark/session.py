"""Open a Spark session on the lake's catalog.

A process has one JVM. The first session starts it, in about 5 s; later ones share it and differ in what a session can
differ in: the catalog and its warehouse, the default namespace, SQL settings, temporary views. So a test, or a thread
with snapshot properties of its own, opens another session and pays almost nothing.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.engines.spark.class_archive import archive_of
from tailrace.lake.catalog.backends import Sqlite, catalog_kind, endpoint, storage_properties
from tailrace.lake.catalog.backends import jar_groups as lake_jars
from tailrace.settings import Settings
from tailrace.toolchain import Java, ToolchainError, class_path, pinned_jars, quiet_home, require_java
from tailrace.toolchain.process_folder import process_folder

_starting = threading.Lock()
"""Held by the thread that starts Spark, or asks whether it was started."""

REDACTED = "(?i)secret|password|token|credential|access[.]?key"
"""The names of settings whose values Spark leaves out of its log of events and its pages: its own, and `credential`."""

_SECRET = re.compile(rf"spark\.sql\.catalog\..*(?:{REDACTED.removeprefix('(?i)')}).*")
"""The settings of catalogs that are told a session once it is there."""

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


Starting: TypeAlias = SparkSession | Callable[[], SparkSession]
"""A Spark session, or a function that starts one when it is needed."""


def when_needed(starting: Starting) -> Callable[[], SparkSession]:
    """Return a function that returns the session, and starts it at the first call."""
    return (lambda: starting) if isinstance(starting, SparkSession) else cache(starting)


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Return the configuration, under its name, of the catalog that the settings name: the tables that `Lake` has."""
    prefix = f"spark.sql.catalog.{settings.catalog}"
    properties = catalog_kind(settings).spark | storage_properties(settings)[1]
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{name}": value for name, value in properties.items()},
        # A cached table would hide what another process committed.
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.default-namespace": settings.namespace,
        "spark.sql.defaultCatalog": settings.catalog,
    }


def session_conf(settings: Settings) -> dict[str, str]:
    """Return the configuration of one session; Spark accepts it at any time."""
    return {
        **catalog_conf(settings),
        "spark.sql.session.timeZone": "UTC",
        # The records of an epoch that is read here are no constants: the optimizer would compute with them, row by row.
        "spark.sql.execution.arrow.localRelationThreshold": "64k",
        # Lists are gathered in a hash map for so many groups, in place of 128 after which all rows are sorted.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
        "spark.sql.ansi.enabled": "true",
        # An epoch is small and nearly all fixed cost; planning it anew between its stages only adds to that.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # A group beyond these 2^20 of a task is looked for twice: with Spark's 2^16 grouping takes a third more time.
        "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
    }


def process_conf(settings: Settings, groups: Sequence[str] = ("lake",), java: Java | None = None) -> dict[str, str]:
    """Return the configuration that is fixed when a process starts its JVM, with `java` or the one that is found.

    Raises ToolchainError when a pinned jar is missing.
    """
    jars = class_path(settings.jars, _needed(settings, groups))
    log4j = Path(str(files(__package__).joinpath("log4j2.properties")))
    archive = archive_of(settings.jars, java or require_java(settings.java_home), jars)
    options = (f"-Dlog4j2.configurationFile={log4j.as_uri()}", "-Duser.timezone=UTC", archive.options)
    conf = {
        "spark.sql.extensions": EXTENSIONS,
        "spark.redaction.regex": REDACTED,
        "spark.sql.catalogImplementation": "in-memory",
        # An epoch of several stages has more generated classes than the usual cache of 100: each would be made again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # The warehouse of Spark's own catalog, in which nothing makes a table.
        "spark.sql.warehouse.dir": f"file://{tempfile.gettempdir()}/tailrace-spark",
        "spark.local.dir": str(process_folder()) if _is_local(settings) else tempfile.gettempdir(),
        "spark.ui.enabled": "false",
        # Without pages there is nobody to look at them, and a driver keeps some 50 kB of each task that it remembers.
        "spark.ui.retainedTasks": "1000",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedJobs": "100",
        "spark.sql.ui.retainedExecutions": "100",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": settings.driver_memory,
        # A job whose results fill the driver's heap hangs for ever; one that is refused is done another way.
        "spark.driver.maxResultSize": str(_bytes(settings.driver_memory) // _MOST_OF_HEAP),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
    }
    if "aws" in lake_jars(settings):
        conf |= _files_in_s3()
    if not _is_local(settings):
        # In local mode the driver's class path is the executors' as well: copying 60 MB would be for nothing.
        conf["spark.jars"] = ",".join(path.as_uri() for path in jars)
    return conf


def socket_conf(settings: Settings) -> dict[str, str]:
    """Return the configuration by which this machine's JVM and Python talk through sockets that are files.

    By the loopback interface each task of Python waits 40 ms, until the JVM's small writes are acknowledged. The files
    are in a folder of this process, which is removed as it ends. A cluster's machines may not have such a folder, nor
    another Python this package, and where the path is too long for a socket none is made: there is no configuration
    then.
    """
    same = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    if not same or not _is_local(settings) or len(tempfile.gettempdir()) > _LONGEST:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(process_folder()),
        "spark.python.daemon.module": "tailrace.engines.spark.workers.worker_daemon",
    }


def _is_local(settings: Settings) -> bool:
    return settings.spark_master.startswith("local")


_LONGEST = 40
"""The longest path of a folder in which sockets have room for their names: systems take 104 characters or more."""

_MOST_OF_HEAP = 8
"""The part of the driver's heap that the results of one job may fill: they are there twice, and there may be others."""


def _bytes(size: str) -> int:
    """Convert a size as a JVM takes it to bytes.

    >>> _bytes("4g"), _bytes("512m")
    (4294967296, 536870912)
    """
    return int(size[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[size[-1]]


def _needed(settings: Settings, groups: Sequence[str]) -> tuple[str, ...]:
    """List the groups of jars that are asked for, and those that the lake needs."""
    return tuple(dict.fromkeys((*groups, *lake_jars(settings))))


def _files_in_s3() -> dict[str, str]:
    """Return Hadoop's configuration to read and write `s3://`: sources, and checkpoints. EMR has its own."""
    at = endpoint("s3")
    conf = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    return conf | ({"spark.hadoop.fs.s3a.endpoint": at, "spark.hadoop.fs.s3a.path.style.access": "true"} if at else {})


def open_session(
    settings: Settings,
    *,
    app: str = "tailrace",
    extra: Mapping[str, str] | None = None,
    groups: Sequence[str] = ("lake",),
) -> SparkSession:
    """Open a Spark session whose default catalog is the one that the settings name.

    The process's first call starts Spark; `app`, `groups` (which pinned jars, `("lake", "kafka")` for a Kafka source),
    the master and the memory count only then. Every call returns a session with its own SQL settings and views, and
    `stop()` on any of them stops Spark for all. `extra` settings come on top of the defaults; on a later call they can
    only be ones that Spark lets a session change. In a process that `spark-submit` started, master, memory, Java and
    jars are the submit's.

    Raises ToolchainError when there is no Java, a pinned jar is missing, or the process's JVM runs without one of them.
    """
    with _starting:
        return _opened(settings, app, extra or {}, groups)


def cancellable(spark: SparkSession, what: str) -> Callable[[], None]:
    """Put Spark's work for this thread from now on into one group; return a function that makes all of it fail."""
    group = f"tailrace-{uuid.uuid4()}"
    spark.sparkContext.setJobGroup(group, what)
    context: Any = spark.sparkContext._jsc
    scala = context.sc()

    def cancel() -> None:
        scala.cancelJobGroupAndFutureJobs(group)

    return cancel


def _opened(settings: Settings, app: str, extra: Mapping[str, str], groups: Sequence[str]) -> SparkSession:
    made = catalog_kind(settings)
    if isinstance(made, Sqlite):
        made.file.parent.mkdir(parents=True, exist_ok=True)
    if SparkContext._active_spark_context is not None:  # the one public way to ask starts a context where there is none
        running = SparkSession.builder.getOrCreate()
        _require_jars(running, _needed(settings, groups))
        return _with(running.newSession(), {**session_conf(settings), **extra})
    conf = {**session_conf(settings), **extra}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _build(app, {"spark.sql.extensions": EXTENSIONS, "spark.redaction.regex": REDACTED, **conf})
    java = require_java(settings.java_home)
    fixed = {"spark.master": settings.spark_master, **process_conf(settings, groups, java), **socket_conf(settings)}
    with _environment(JAVA_HOME=str(quiet_home(java, settings.jars)), SPARK_LOCAL_IP="127.0.0.1", SPARK_HOME=None):
        # The workers run this very interpreter: `python3` on the PATH may be another, without pyspark.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return _build(app, {**fixed, **conf})


def _require_jars(running: SparkSession, groups: Sequence[str]) -> None:
    """Raise `ToolchainError` where the process's JVM was started without the jars of these groups."""
    path = running.conf.get("spark.driver.extraClassPath", None)
    if path is None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    there = {Path(one).name for one in path.split(os.pathsep)}
    if absent := [group for group in groups if not all(Path(jar.file).name in there for jar in pinned_jars(group))]:
        raise ToolchainError(
            f"this process started Spark without the jars of {', '.join(absent)}, and a running JVM takes no more: "
            f"its first session has to ask for groups={tuple(groups)!r}"
        )


def _build(app: str, conf: Mapping[str, str]) -> SparkSession:
    # What Spark is started with is in the JVM's command line, which everybody on the machine may read.
    secret = {key: value for key, value in conf.items() if _SECRET.fullmatch(key)}
    builder = SparkSession.builder.appName(app)
    for key, value in conf.items() - secret.items():
        builder = builder.config(key, value)
    session = _with(builder.getOrCreate(), secret)
    session.sparkContext.setLogLevel("ERROR")
    # pyspark prints every failed query with its whole Java stack, and then raises it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session


def _with(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    for key, value in conf.items():
        session.conf.set(key, value)
    return session


@contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Set these environment variables while Spark starts, None to remove one, and restore them after that."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _assign(values)
        yield
    finally:
        _assign(before)


def _assign(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
