"""Whoever only connects keeps nobody out: half a request is ended in time, and too many connections make room."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread
from urllib.request import urlopen

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tailrace.serve import web_server
from tailrace.serve.connections import Limits
from tailrace.serve.guard import Access, Guard
from tailrace.serve.web_server import Listener, listen, serve
from tailrace.settings import Settings
from tailrace.telemetry import endpoint
from tailrace.telemetry.endpoint import Endpoint
from tailrace.telemetry.metrics import Metrics
from tailrace.telemetry.run_events import Subject

LIMITS = Limits(sockets=20, asking=0.5, reading=0.5)
ASKS = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers; to /slow in two seconds, to /large more than sockets hold."""
    if scope["type"] != "http":
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(2)
    body = b"x" * (50_000_000 if scope["path"] == "/large" else 2)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, token: str | None = None, limits: Limits = LIMITS) -> Iterator[Listener]:
    """A server in a thread of this process, which ends with the block."""
    started, servers = Event(), list[uvicorn.Server]()

    class Noted(web_server._Server):
        def install_signal_handlers(self) -> None:
            """No signal reaches a thread."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            servers.append(self)
            await super().startup(sockets)

    monkeypatch.setattr(web_server, "_Server", Noted)
    at = listen("127.0.0.1", 0)
    guard = Guard(application, Access.of("127.0.0.1", token), "cookie")
    thread = Thread(target=serve, args=(guard, at, started.set, limits))
    thread.start()
    try:
        assert started.wait(10)
        yield at
    finally:
        servers[0].should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def connected(at: Listener, sends: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", at.port), timeout=5)
    made.sendall(sends)
    return made


def is_ended(one: socket.socket) -> bool:
    """Whether the other side has ended a connection, which is waited for."""
    try:
        while one.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def seconds_to_answer(at: Listener, path: str = "") -> float:
    began = time.monotonic()
    with urlopen(f"{at.address}{path}", timeout=5) as answer:
        assert answer.status == 200
    return time.monotonic() - began


@pytest.mark.parametrize("sends", [b"", b"G", ASKS, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nabc"])
def test_a_request_that_does_not_come_whole_is_ended_in_time(monkeypatch: pytest.MonkeyPatch, sends: bytes) -> None:
    with served(monkeypatch) as at, connected(at, sends) as one:
        began = time.monotonic()
        assert is_ended(one)
        assert time.monotonic() - began < 3


def trickle(one: socket.socket) -> None:
    for number in range(100):
        one.sendall(b"X-%d: a\r\n" % number)
        time.sleep(0.1)


def test_bytes_that_trickle_in_give_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as at, connected(at, ASKS) as one:
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(one)
        assert time.monotonic() - began < 3


def test_half_a_request_behind_an_answer_is_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as at, connected(at, ASKS + b"\r\n" + ASKS) as one:
        began = time.monotonic()
        assert is_ended(one)
        assert time.monotonic() - began < 3


def test_an_answer_may_take_its_time_and_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as at:
        assert seconds_to_answer(at, "slow") > 1.5


def test_who_takes_nothing_of_an_answer_is_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as at, connected(at, b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as one:
        time.sleep(2)
        taken = 0
        with suppress(ConnectionResetError):
            while found := len(one.recv(1 << 20)):
                taken += found
        assert taken < 50_000_000


@pytest.mark.parametrize("sends", [b"", ASKS])
@pytest.mark.parametrize("token", [None, "a token of some length"])
def test_the_page_answers_while_hundreds_connect_and_say_half(
    monkeypatch: pytest.MonkeyPatch, sends: bytes, token: str | None
) -> None:
    # So that room is made, and not only waited for.
    with served(monkeypatch, token, replace(LIMITS, asking=60)) as at, ExitStack() as held:
        path = "" if token is None else "?token=a+token+of+some+length"
        for number in range(300):
            held.enter_context(connected(at, sends))
            if number % 50 == 49:
                assert (seconds_to_answer(at) if token is None else _let_in(at, path)) < 2


def _let_in(at: Listener, path: str) -> float:
    began = time.monotonic()
    with connected(at, f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()) as one:
        assert b" 303 " in one.recv(1000)
    return time.monotonic() - began


def test_where_all_are_being_answered_a_further_one_is_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(monkeypatch) as at, ExitStack() as held:
        slow = [held.enter_context(connected(at, asks)) for _ in range(LIMITS.sockets)]
        time.sleep(0.5)
        with connected(at) as one:
            assert one.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert all(b" 200 " in one.recv(1000) for one in slow)


def test_who_is_not_let_in_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, "a token of some length") as at, connected(at, ASKS + b"\r\n") as one:
        assert b" 401 " in one.recv(1000)
        assert is_ended(one)


def test_metrics_are_told_while_hundreds_connect_and_say_half(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 60)
    with Endpoint(Metrics(Subject("stream", settings, ())), "127.0.0.1", 0) as metrics, ExitStack() as held:
        port = int(metrics.url.split(":")[2].split("/")[0])
        for number in range(200):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            one.sendall(ASKS)
            if number % 50 == 49:
                with urlopen(metrics.url, timeout=5) as answer:
                    assert answer.status == 200


def test_a_scrape_that_does_not_come_whole_is_ended_in_time(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.5)
    with Endpoint(Metrics(Subject("stream", settings, ())), "127.0.0.1", 0) as metrics:
        port = int(metrics.url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
            one.sendall(ASKS)
            assert is_ended(one)
