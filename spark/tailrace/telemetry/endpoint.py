"""Serve metrics to scrapers, and prevent idle connections from blocking other connections."""

from __future__ import annotations

import socket
from collections.abc import Callable
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tailrace.telemetry.metrics import Metrics
from tailrace.telemetry.run_events import ObserveError

MOST_CONNECTIONS = 32
"""The maximum number of open connections.

When a further connection is opened, the server closes the oldest connection, which is usually idle.
"""


class _Handler(WSGIRequestHandler):
    timeout = 10
    """The maximum time in seconds for which the server waits for a client that sends or reads no bytes."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because scrapers send requests all the time."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, family: socket.AddressFamily, place: tuple[Any, ...], application: Callable[..., Any]) -> None:
        self.address_family = family
        self._open, self._lock = dict[Any, None](), Lock()
        super().__init__(place, _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            longest = next(iter(self._open)) if len(self._open) > MOST_CONNECTIONS else None
        if longest is not None:
            self.shutdown_request(longest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing if a client has disconnected."""


class Endpoint:
    """An HTTP server that serves metrics until it is closed. Port 0 stands for any free port.

    Raises `ObserveError` if the port is taken or the host is not an address of this machine.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        from prometheus_client import make_wsgi_app

        try:
            family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, place, make_wsgi_app(metrics.registry))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ObserveError(
                f"metrics cannot be served at {host}:{port} ({why}): pass another port with "
                "--metrics-port, 0 for any that is free, or set TAILRACE_METRICS_HOST to an address of this machine"
            ) from None
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_port}/metrics"

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
