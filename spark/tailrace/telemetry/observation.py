"""Observe a command's run with the metrics, structured logs and lineage that the settings request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.telemetry.run_events import ObserveError, RunEnd, RunStart, Subject, Watcher, join_watchers

if TYPE_CHECKING:
    from tailrace.telemetry.log_lines import Logs
    from tailrace.telemetry.metrics import Metrics


@dataclass
class Observation:
    """An observed run. Call `tell` with each event of the run, and set `stopped` if the run was asked to stop."""

    tell: Watcher
    stopped: bool = False


@contextmanager
def observe_run(subject: Subject, say: Callable[[str], None], port: int | None = None) -> Iterator[Observation]:
    """Observe a run from its beginning to its end, and notify the watchers even if the run ends with an error.

    `say` is called with messages for the user: the address of the metrics, and failures to observe the run. Raises
    `ObserveMissingError` if a needed extra is not installed, and `ObserveError` if a port or a file is not available.
    """
    settings = subject.settings
    with ExitStack() as stack:
        watchers: list[Watcher] = []
        logs: Logs | None = None
        warn = say
        if settings.log_format is not None or settings.log_file is not None:
            from tailrace.telemetry.log_lines import Logs

            logs = Logs(subject, settings.log_format or "text", settings.log_file)
            stack.callback(logs.close)
            watchers.append(logs)
            warn = _both(logs.log_warning, say) if settings.log_file else logs.log_warning
        if port is not None or settings.metrics_file is not None:
            metrics = _metrics(subject)
            if settings.metrics_file is not None:
                # Write the metrics file only after the run's last event, because the metrics also count the last event.
                stack.callback(_write, metrics, settings.metrics_file, warn)
            if port is not None:
                from tailrace.telemetry.endpoint import Endpoint

                endpoint = stack.enter_context(Endpoint(metrics, settings.metrics_host, port))
                say(f"metrics are served at {endpoint.url}")
                if logs is not None:
                    logs.log_endpoint(endpoint.url)
            # Notify the watcher for metrics before the watcher for logs, so that the metrics already count an epoch
            # when the epoch is logged.
            watchers.insert(0, metrics)
        if wants_lineage():
            from tailrace.telemetry.lineage import Lineage

            lineage = Lineage(subject, warn)
            stack.callback(lineage.close)
            watchers.append(lineage)
        observed = Observation(join_watchers(watchers, warn))
        observed.tell(RunStart())
        try:
            yield observed
        except BaseException as error:
            observed.tell(RunEnd(error))
            raise
        observed.tell(RunEnd(stopped=observed.stopped))


def wants_lineage(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if OpenLineage is configured by a URL, a configuration file or a transport.

    >>> wants_lineage({"OPENLINEAGE_URL": "http://localhost:5000"}), wants_lineage({"OPENLINEAGE_NAMESPACE": "prod"})
    (True, False)
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = environment.get("OPENLINEAGE_URL") or environment.get("OPENLINEAGE_CONFIG")
    return bool(named) or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environment)


def _metrics(subject: Subject) -> Metrics:
    from tailrace.telemetry.metrics import Metrics

    file = subject.settings.metrics_file
    if file is not None and not (file.is_dir() or file.parent.is_dir()):
        raise ObserveError(f"the folder {file.parent} is not there: make it, or set TAILRACE_METRICS_FILE to another")
    return Metrics(subject)


def _write(metrics: Metrics, file: Path, warn: Callable[[str], None]) -> None:
    try:
        metrics.write(file)
    except OSError as error:
        warn(f"the metrics could not be put into {file} ({error.strerror}): set TAILRACE_METRICS_FILE to another")


def _both(one: Callable[[str], None], other: Callable[[str], None]) -> Callable[[str], None]:
    def warn(text: str) -> None:
        one(text)
        other(text)

    return warn
