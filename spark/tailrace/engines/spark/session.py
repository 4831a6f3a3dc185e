"""Open Spark sessions on the lake's catalog.

A process has one JVM. The first session starts the JVM, which takes about 5 s. Later sessions share the JVM. Each
session has its own SQL settings and temporary views, and may have its own catalog, warehouse and default namespace. A
test, or a thread that needs other snapshot properties, can therefore open another session at almost no cost.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from tailrace.engines.duckdb.database.json_looks import looks
from tailrace.engines.spark.class_archive import archive_of
from tailrace.lake.catalog.backends import Sqlite, catalog_kind, endpoint, storage_properties
from tailrace.lake.catalog.backends import jar_groups as lake_jars
from tailrace.settings import Settings
from tailrace.sql.terms import INSIDE
from tailrace.toolchain import Java, ToolchainError, class_path, pinned_jars, quiet_home, require_java
from tailrace.toolchain.process_folder import process_folder

_starting = threading.Lock()
"""The lock for starting Spark, and for checking whether Spark has been started."""

REDACTED = "(?i)secret|password|token|credential|access[.]?key|jaas|keystore[.]key"
"""A pattern for the names of settings whose values Spark hides in its event log and web pages.

The pattern is Spark's default pattern, with `credential` and the secrets of Kafka's clients added.
"""

_SECRET = re.compile(rf"spark\.sql\.catalog\..*(?:{REDACTED.removeprefix('(?i)')}).*")
"""A pattern for the secret settings of catalogs. A session gets these settings only after Spark has started."""

_CONF: dict[str, dict[str, str]] = tomllib.loads(files(__package__).joinpath("spark.toml").read_text())
"""The part of the configuration of sessions and of the process that does not depend on `Settings`."""

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


Starting: TypeAlias = SparkSession | Callable[[], SparkSession]
"""A Spark session, or a function that starts a Spark session."""


def when_needed(starting: Starting) -> Callable[[], SparkSession]:
    """Return a function that returns the Spark session. The function's first call starts the session if necessary."""
    return (lambda: starting) if isinstance(starting, SparkSession) else cache(starting)


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Return Spark's configuration for the catalog in `settings`.

    With this configuration, Spark sees the same tables as `Lake`.
    """
    prefix = f"spark.sql.catalog.{settings.catalog}"
    properties = catalog_kind(settings).spark | storage_properties(settings)[1]
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{name}": value for name, value in properties.items()},
        # Spark must not cache tables, because it would then not see the commits of other processes.
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.default-namespace": settings.namespace,
        "spark.sql.defaultCatalog": settings.catalog,
    }


def session_conf(settings: Settings) -> dict[str, str]:
    """Return the configuration of a session. All of these settings can be changed while Spark is running."""
    shuffle = {"spark.sql.shuffle.partitions": str(settings.shuffle_partitions)}
    return catalog_conf(settings) | _CONF["session"] | shuffle


def process_conf(settings: Settings, groups: Sequence[str] = ("lake",), java: Java | None = None) -> dict[str, str]:
    """Return the configuration that is fixed when a process starts its JVM.

    The JVM is started with `java`. If `java` is None, the JVM is started with the Java that `require_java` finds.
    Raises ToolchainError if a pinned jar is missing.
    """
    jars = class_path(settings.jars, _needed(settings, groups))
    log4j = Path(str(files(__package__).joinpath("log4j2.properties")))
    archive = archive_of(settings.jars, java or require_java(settings.java_home), jars)
    options = (f"-Dlog4j2.configurationFile={log4j.as_uri()}", "-Duser.timezone=UTC", archive.options)
    conf = _CONF["process"] | {
        "spark.sql.extensions": EXTENSIONS,
        "spark.redaction.regex": REDACTED,
        # This is the warehouse of Spark's built-in catalog. The warehouse stays empty.
        "spark.sql.warehouse.dir": f"file://{tempfile.gettempdir()}/tailrace-spark",
        "spark.local.dir": str(process_folder()) if _is_local(settings) else tempfile.gettempdir(),
        "spark.driver.memory": settings.driver_memory,
        # If a job's results filled the driver's heap, the job would hang for ever. With this limit, Spark refuses to
        # fetch such large results, and the caller leaves them on the executors.
        "spark.driver.maxResultSize": str(_bytes(settings.driver_memory) // _MOST_OF_HEAP),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
    }
    if "aws" in lake_jars(settings):
        conf |= _files_in_s3()
    if not _is_local(settings):
        # In local mode, the executors use the driver's class path, so no jars are copied. This saves copying 60 MB.
        conf["spark.jars"] = ",".join(path.as_uri() for path in jars)
    return conf


def socket_conf(settings: Settings) -> dict[str, str]:
    """Return the configuration that makes the JVM and Python on this machine communicate through Unix domain sockets.

    Over the loopback interface, each Python task waits 40 ms until the JVM's small writes are acknowledged. The socket
    files are in a folder that is removed when this process ends. The configuration is empty in three cases. The first
    case is a cluster, because other machines might lack the folder. The second case is that the workers run another
    Python interpreter, which might lack this package. The third case is a folder whose path is too long for the path of
    a socket.
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
"""The maximum length of the path of the folder for temporary files, in characters.

With a longer path, the sockets' paths might be too long: every system allows at least 104 characters for a socket's
path.
"""

_MOST_OF_HEAP = 8
"""The divisor that limits the results of one job.

The results may take up at most 1 / `_MOST_OF_HEAP` of the driver's heap. The heap contains two copies of the results,
and may also contain the results of other jobs.
"""


def _bytes(size: str) -> int:
    """Convert a memory size from the JVM's notation to bytes.

    >>> _bytes("4g"), _bytes("512m")
    (4294967296, 536870912)
    """
    return int(size[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[size[-1]]


def _needed(settings: Settings, groups: Sequence[str]) -> tuple[str, ...]:
    """Return the requested groups of jars and the groups that the lake needs, without duplicates."""
    return tuple(dict.fromkeys((*groups, *lake_jars(settings))))


def _files_in_s3() -> dict[str, str]:
    """Return Hadoop's configuration for sources and checkpoints with `s3://` paths.

    EMR has its own file system for `s3://` paths.
    """
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
    """Open a Spark session whose default catalog is the catalog in `settings`.

    The first call in a process starts Spark. Only this call uses `app`, `groups`, and the master and the memory in
    `settings`. `groups` are groups of pinned jars, such as `("lake", "kafka")` for a Kafka source. Every call returns a
    session with its own SQL settings and views. `stop()` on any session stops Spark for all sessions. The settings in
    `extra` are added to the defaults; a later call can only change settings that Spark allows a session to change. If
    `spark-submit` started the process, `spark-submit` sets the master, the memory, Java and the jars.

    Raises ToolchainError if Java or a pinned jar is missing, or if the process's JVM was started without a needed jar.
    """
    with _starting:
        return _opened(settings, app, extra or {}, groups)


def cancellable(spark: SparkSession, what: str) -> Callable[[], None]:
    """Put all later Spark jobs of this thread into one job group, and return a function that cancels the group."""
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
        # Spark's workers must run the same interpreter as this process. `python3` on the PATH may be another
        # interpreter, which lacks pyspark.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return _build(app, {**fixed, **conf})


def _require_jars(running: SparkSession, groups: Sequence[str]) -> None:
    """Raise `ToolchainError` if the process's JVM was started without the jars of these groups."""
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
    # The settings with which Spark is started are part of the JVM's command line, which every user of the machine can
    # read. Secret settings are therefore set only after the start.
    secret = {key: value for key, value in conf.items() if _SECRET.fullmatch(key)}
    builder = SparkSession.builder.appName(app)
    for key, value in conf.items() - secret.items():
        builder = builder.config(key, value)
    session = _with(builder.getOrCreate(), secret)
    session.sparkContext.setLogLevel("ERROR")
    # Silence pyspark's logger. For every failed query, it would print the whole Java stack trace, in addition to the
    # error that pyspark raises.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session


def _with(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    for key, value in conf.items():
        session.conf.set(key, value)
    session.udf.register(INSIDE, _inside())
    return session


@cache
def _inside() -> Any:
    """Return the function that looks into JSON texts, for Spark's Python workers."""
    made: Any = arrow_udf  # the types that pyspark declares for it leave out functions of arrays
    return made(looks, "string")


@contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Set environment variables while the block runs, and restore their previous values afterwards.

    A variable whose value is None is removed.
    """
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
