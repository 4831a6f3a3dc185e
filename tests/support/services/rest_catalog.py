"""Iceberg's own REST catalog on loopback, and a gate before it that asks for a token and can lose what is said.

The catalog keeps its tables in a file of SQLite, so it can be killed and go on where it was.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs
from urllib.request import urlopen

from tailrace.settings import Settings
from tailrace.toolchain import class_path, require_java

READY_SECONDS = 60
JVM = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CLIENT = "tailrace:hush"
"""The client that the gate gives a token."""


class Reply(NamedTuple):
    """What a server answers."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


Forward = Callable[[], Reply]
"""Has the catalog do what it was asked, and gives its reply."""


@dataclass
class RestServer:
    """The process of the catalog; `start` and `kill` it as often as is wanted."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers: 1 second."""
        settings, log = Settings(), self.folder / "catalog.log"
        hadoop = sorted(_spark_jars().glob("hadoop-client-*.jar"))
        sqlite = [one for one in class_path(settings.jars, ["lake"]) if one.name.startswith("sqlite")]
        jars = [*class_path(settings.jars, ["rest-server"]), *sqlite, *hadoop]
        told = self.folder / "catalog.xml"
        told.write_text(SERVER.format(folder=self.folder, port=self.port))
        command = [str(require_java(settings.java_home).command), *JVM, "-cp", os.pathsep.join(map(str, jars))]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "org.eclipse.jetty.xml.XmlConfiguration", str(told)], stdout=out, stderr=out
            )
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/v1/config", timeout=5):
                    return
            except OSError:
                assert self._process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass
class Gate:
    """The catalog as clients see it: `uri`, where `token` is asked for, and `token_uri`, where `CLIENT` gets it.

    Each of `faults` befalls one commit, in order: it may forward the commit or not, and returns what the client gets to
    hear; None cuts the connection.
    """

    server: RestServer
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    faults: list[Callable[[Forward], Reply | None]] = field(default_factory=list)
    commits: int = 0
    heard: str | None = None
    """What the last request said of who asks."""

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/tokens"

    def answered(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply | None:
        """What the client gets to hear; None cuts the connection."""
        if path == "/tokens":
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            if f"{asked.get('client_id')}:{asked.get('client_secret')}" != CLIENT:
                return Reply(401, b'{"error": "invalid_client"}')
            given = {"access_token": self.token, "token_type": "bearer", "expires_in": 3600}
            return Reply(200, json.dumps(given).encode())
        self.heard = headers.get("authorization")
        if self.heard != f"Bearer {self.token}":
            error = {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}
            return Reply(401, json.dumps({"error": error}).encode())
        forward = partial(self._forwarded, method, path, headers, body)
        try:
            # Not the reports of what was read, which are below a table.
            if method == "POST" and re.search(r"/tables/[^/]+$", path):
                self.commits += 1
                if self.faults:
                    return self.faults.pop(0)(forward)
            return forward()
        except OSError:
            # The catalog is away.
            return Reply(503)

    def _forwarded(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        there = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=READY_SECONDS)
        try:
            kept = {name: value for name, value in headers.items() if name not in _OF_A_CONNECTION}
            there.request(method, path, body=body or None, headers=kept)
            answer = there.getresponse()
            told = tuple(one for one in answer.getheaders() if one[0].lower() not in _OF_A_CONNECTION)
            return Reply(answer.status, answer.read(), told)
        except http.client.HTTPException as error:
            raise OSError("the catalog died") from error
        finally:
            there.close()


_OF_A_CONNECTION = {"host", "connection", "keep-alive", "transfer-encoding", "content-length"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, gate: Gate, *args: object) -> None:
        self.gate = gate
        super().__init__(*args)  # type: ignore[arg-type]

    def handle(self) -> None:
        # A client that was killed hears nothing any more.
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        return

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        named = {name.lower(): value for name, value in self.headers.items()}
        reply = self.gate.answered(self.command, self.path, named, body)
        if reply is None:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815


@contextmanager
def rest_catalog(folder: Path) -> Iterator[Gate]:
    """A running catalog, its file and its log in a folder, behind its gate: 1 second."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        server = RestServer(folder, one.getsockname()[1])
    gate = Gate(server, 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, gate)) as http:
        gate.port = http.server_address[1]
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            server.start()
            yield gate
        finally:
            http.shutdown()
            server.kill()


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


SERVER = """\
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://www.eclipse.org/jetty/configure_10_0.dtd">
<Configure id="server" class="org.eclipse.jetty.server.Server">
  <New id="catalog" class="org.apache.iceberg.jdbc.JdbcCatalog">
    <Call name="setConf"><Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg></Call>
    <Call name="initialize">
      <Arg>behind</Arg>
      <Arg>
        <Map>
          <Entry>
            <Item>uri</Item>
            <Item>jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&amp;synchronous=OFF&amp;busy_timeout=60000</Item>
          </Entry>
          <Entry><Item>warehouse</Item><Item>file://{folder}/tables</Item></Entry>
          <Entry><Item>jdbc.schema-version</Item><Item>V1</Item></Entry>
          <Entry><Item>clients</Item><Item>1</Item></Entry>
        </Map>
      </Arg>
    </Call>
  </New>
  <Call name="addConnector">
    <Arg>
      <New class="org.eclipse.jetty.server.ServerConnector">
        <Arg name="server"><Ref refid="server"/></Arg>
        <Set name="host">127.0.0.1</Set>
        <Set name="port">{port}</Set>
      </New>
    </Arg>
  </Call>
  <Set name="handler">
    <New class="org.eclipse.jetty.servlet.ServletContextHandler">
      <Call name="addServlet">
        <Arg>
          <New class="org.eclipse.jetty.servlet.ServletHolder">
            <Arg>
              <New class="org.apache.iceberg.rest.RESTCatalogServlet">
                <Arg>
                  <New class="org.apache.iceberg.rest.RESTCatalogAdapter"><Arg><Ref refid="catalog"/></Arg></New>
                </Arg>
              </New>
            </Arg>
          </New>
        </Arg>
        <Arg>/*</Arg>
      </Call>
    </New>
  </Set>
</Configure>
"""
"""What Jetty starts: Iceberg's servlet over its JDBC catalog. Iceberg's own main class listens on every address.

Its catalog has one connection: where two have SQLite's file open, one that keeps an old snapshot can write no more.
"""
