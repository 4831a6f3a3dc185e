"""A schema registry for tests, and what producers do with one: register schemas, and frame what they wrote.

The server is a small one on loopback with what Confluent's interface says of these requests: its answers were held
against those of a real registry, which the tests take in its place where `TEST_SCHEMA_REGISTRY` has its
address.
"""

from __future__ import annotations

import io
import json
import os
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow as pa
import requests

from tailrace.ingest.line_reader import LINES
from tailrace.settings import Settings


@dataclass(frozen=True)
class Registry:
    """A registry in which tests register schemas."""

    uri: str
    server: RegistryServer | None = None

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """Register a schema, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        told = {"schema": text, "schemaType": kind, "references": list(references)}
        content = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        answer = requests.post(f"{self.uri}/subjects/{subject}/versions", json=told, headers=content, timeout=10)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def settings(self, settings: Settings, **more: Any) -> Settings:
        """The settings with this registry."""
        return settings.model_copy(update={"schema_registry_uri": self.uri, **more})


@dataclass
class RegistryServer:
    """The state of the server. `asked` are the paths that it was asked for, `failing` the status of its answers."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorization: str | None = None
    failing: int | None = None
    page: str | None = None

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        if self.failing is not None:
            return self.failing, {"error_code": self.failing * 100 + 1, "message": "failing"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["schemas", "ids", id]:
                if not 0 < int(id) <= len(self.schemas):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, self.schemas[int(id) - 1]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                number = self.subjects[subject][int(version) - 1]
                return 200, {"subject": subject, "version": int(version), "id": number, **self.schemas[number - 1]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def register(self, path: str, told: dict[str, Any]) -> tuple[int, Any]:
        subject = unquote(path.split("/")[2])
        kept = {name: value for name, value in told.items() if value and (name, value) != ("schemaType", "AVRO")}
        if kept not in self.schemas:
            self.schemas.append(kept)
        id = self.schemas.index(kept) + 1
        self.subjects.setdefault(subject, []).append(id)
        return 200, {"id": id}


@contextmanager
def serving() -> Iterator[Registry]:
    """A registry that is gone with the block."""
    state = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(*state.answer(self.path, self.headers["Authorization"]))

        def do_POST(self) -> None:
            self._say(*state.register(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _say(self, status: int, answer: Any) -> None:
            said = (json.dumps(answer) if state.page is None else state.page).encode()
            self.send_response(404 if state.page is not None else status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Registry(f"http://127.0.0.1:{server.server_address[1]}", state)
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def any_registry() -> Iterator[Registry]:
    """A real registry where one is told, else the server."""
    told = os.environ.get("TEST_SCHEMA_REGISTRY")
    if told:
        yield Registry(told)
    else:
        with serving() as registry:
            yield registry


def basic(credential: str) -> str:
    """The header of a user and a password."""
    return f"Basic {b64encode(credential.encode()).decode()}"


def framed(id: int, body: bytes) -> bytes:
    """A message in Confluent's wire format."""
    return struct.pack(">bI", 0, id) + body


def avro_body(schema: Any, record: Any) -> bytes:
    """A record as Avro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def as_lines(values: Sequence[bytes | None]) -> pa.Table:
    """Messages as they come of a topic, numbered in their order."""
    rows = [{"_bytes": value, "_source": "t-0", "_offset": n, "_arrival": 0} for n, value in enumerate(values)]
    return pa.Table.from_pylist(rows, schema=LINES)
