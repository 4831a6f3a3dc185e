"""A Spark Thrift server on a lake, as a cluster has one for those who ask by SQL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.engines.spark.session import process_conf, session_conf
from tailrace.settings import Settings
from tailrace.toolchain import quiet_home, require_java

SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


@contextmanager
def thrift(settings: Settings, folder: Path) -> Iterator[int]:
    """A running server, whose own files are in a folder; gives the port that it listens at on loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    confs = {**process_conf(settings), **session_conf(settings)}
    # The server wants a metastore, where no table of the lake is.
    del confs["spark.sql.catalogImplementation"]
    confs["spark.hadoop.javax.jdo.option.ConnectionURL"] = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--class", SERVER]
    command += [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    command += ["spark-internal", "--hiveconf", f"hive.server2.thrift.port={port}"]
    command += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    java = require_java(settings.java_home)
    env = os.environ | {"JAVA_HOME": str(quiet_home(java, settings.jars)), "SPARK_LOCAL_IP": "127.0.0.1"}
    env["PYSPARK_PYTHON"] = sys.executable
    folder.mkdir()
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        until = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < until, log.read_text()[-2000:]
                time.sleep(0.5)
        yield port
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
