"""Metrics as Prometheus would read them, and a collector of lineage on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: Series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample that has at least these labels; None where there is none."""
        found = [
            value
            for (own, pairs), value in self.samples.items()
            if own == f"tailrace_{name}" and labels.items() <= pairs
        ]
        assert len(found) <= 1, f"{name} {labels} is {len(found)} series"
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples that have at least these labels."""
        pairs = labels.items()
        return sum(value for (own, has), value in self.samples.items() if own == f"tailrace_{name}" and pairs <= has)


def scraped(url: str) -> Scraped:
    """What a scrape of this address gives."""
    with urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return Scraped(answer.read().decode())


@contextmanager
def collecting(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A collector of OpenLineage events over HTTP on the loopback: its address, and what it was sent."""
    events: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", events
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
