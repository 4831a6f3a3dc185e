"""Send lineage (which data a run reads and writes) as OpenLineage events.

A stream is reported as one run of a job. The stream's events are START, then RUNNING at intervals, then COMPLETE or
FAIL. A backfill is reported as one run for each stage. The event START is sent when the backfill of the stage is
recorded and gets its number (its generation). The last event of a backfill is COMPLETE, FAIL, or (if the backfill gave
way to a newer run) ABORT. The settings of the OpenLineage client determine where events are sent (OPENLINEAGE_URL,
OPENLINEAGE_CONFIG, OPENLINEAGE__TRANSPORT__...); without these settings, no events are sent. A separate thread sends
the events. The first failure to send an event is reported. No run waits for lineage or fails because of lineage. Needs
the extra `observe` (openlineage-python).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlparse
from uuid import uuid4

import tailrace
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.events import RunRecorded
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import Contract, log_contract, rejected_contract
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.base.time import text
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.definition.definition import Definition
from tailrace.stream.epoch_report import EpochReport
from tailrace.telemetry.run_events import OUTCOMES, RunEnd, RunEvent, RunStart, Subject, missing_library

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunState
    from openlineage.client.facet_v2 import DatasetFacet, JobFacet, RunFacet

D = TypeVar("D")

EVERY = 60.0
"""The minimum time between two RUNNING events of a stream, in seconds."""

PRODUCER = f"urn:tailrace:{tailrace.__version__}"

FACET = "tailrace"
"""The name of the facet (a named group of data) that Tailrace adds to the run in each OpenLineage event.

The facet contains the run's id, the pipelines with their generations and fingerprints, the first and the last epoch,
the number of a backfill's windows for each outcome, and the engines that computed the results.
"""


class Lineage:
    """A watcher that reports the lineage of one run. `close` waits until every event has been sent or has failed.

    If an event cannot be sent, `warn` is called with the reason, but only for the first such event. Raises
    `ObserveMissingError` if openlineage-python is not installed.
    """

    def __init__(self, subject: Subject, warn: Callable[[str], None], every: float = EVERY) -> None:
        try:
            import openlineage.client.event_v2 as events
            import openlineage.client.facet_v2 as facets
        except ImportError as error:
            raise missing_library("lineage (OPENLINEAGE_URL, OPENLINEAGE_CONFIG)", error) from None
        self._events, self._facets = events, facets
        events.set_producer(PRODUCER)
        # Silence the client, which would otherwise log every event that it cannot send. Instead, `warn` reports the
        # first failure.
        logging.getLogger("openlineage").setLevel(logging.CRITICAL)
        self.subject, self.every, self._warn = subject, every, warn
        self._client: Any = None
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="lineage")
        self._warned = False
        self._reported = time.monotonic()
        self._epochs: tuple[int, int] | None = None
        self._generations: dict[str, int] = {}
        self._engines: dict[str, str] = {}
        self._backfills: dict[str, str] = {}

    def __call__(self, event: RunEvent) -> None:
        stream = self.subject.command == "stream"
        match event:
            case RunStart() if stream:
                self._stream("START")
            case EpochReport():
                self._epoch(event)
            case RunRecorded() if not stream and event.run.kind == "backfill":
                self._backfill(event)
            case RunEnd(error) if stream:
                self._stream("COMPLETE" if error is None else "FAIL", error)

    def close(self) -> None:
        """Send the remaining events, and close the client."""
        if self._client is not None:
            self._sending.submit(self._client.close)
        self._sending.shutdown()

    def _epoch(self, report: EpochReport) -> None:
        self._epochs = (self._epochs[0] if self._epochs else report.epoch, report.epoch)
        for name, folded in report.folded.items():
            if folded.generation is not None:
                self._generations[name] = folded.generation
            self._engines[name] = folded.engine
        if time.monotonic() - self._reported >= self.every:
            self._stream("RUNNING")

    def _stream(self, state: str, error: BaseException | None = None) -> None:
        self._reported = time.monotonic()
        subject, stages = self.subject, self.subject.stages
        logs, job = subject.logs, f"stream.{subject.log}"
        written: list[Contract] = []
        if not subject.sources:
            # A stream without sources does not write logs; it reads logs that another stream writes.
            inputs, job = self._tables(self._events.InputDataset, map(log_contract, logs)), f"{job}.from_log"
        else:
            inputs = [self._source(subject.sources[log.name]) for log in logs]
            written = [contract(log) for log in logs for contract in (log_contract, rejected_contract)]
        for stage in stages:
            written += self._outputs(stage)
        epochs = None if self._epochs is None else dict(zip(("first", "last"), self._epochs, strict=True))
        own = {"run": subject.run, "epochs": epochs, "engines": self._engines}
        run: dict[str, RunFacet] = {FACET: self._own_facet(stages, self._generations, **own)}
        if error is not None:
            run["errorMessage"] = self._error_facet(f"{type(error).__name__}: {error}")
        outputs = self._tables(self._events.OutputDataset, written)
        self._emit(state, subject.run, job, "STREAMING", run, inputs, outputs)

    def _backfill(self, noted: RunRecorded) -> None:
        backfill = noted.run
        state = {"started": "START", "committed": "COMPLETE", "gave_way": "ABORT"}.get(backfill.status, "FAIL")
        stage = next(one for one in self.subject.stages if one.name == noted.pipeline)
        windows = {name: getattr(backfill, name) for name in OUTCOMES} if state == "COMPLETE" else None
        own = {"run": backfill.run, "engine": backfill.engine, "windows": windows}
        own["epochs"] = {"first": 0, "last": backfill.log_epoch}
        run: dict[str, RunFacet] = {
            FACET: self._own_facet([stage], {stage.name: backfill.generation}, **own),
            "nominalTime": self._facets.nominal_time_run.NominalTimeRunFacet(text(backfill.first), text(backfill.last)),
        }
        if state == "FAIL":
            run["errorMessage"] = self._error_facet(backfill.reason or "it failed")
        outputs = self._tables(self._events.OutputDataset, self._outputs(stage))
        id = self._backfills.setdefault(backfill.run, str(uuid4()))
        inputs = self._tables(self._events.InputDataset, map(log_contract, stage.sources))
        self._emit(state, id, f"backfill.{stage.name}", "BATCH", run, inputs, outputs)

    def _outputs(self, stage: Definition) -> list[Contract]:
        """Return the contracts of the tables that a run of the stage writes."""
        own = tables_of(stage)
        if own.answers is None or stage.name not in self.subject.stages_with_answers(Lake(self.subject.settings)):
            return [own.ledger]
        return [own.ledger, own.answers]

    def _emit(
        self, state: str, run: str, job: str, processing: str, facets: dict[str, RunFacet],
        inputs: Sequence[InputDataset], outputs: Sequence[OutputDataset],
    ) -> None:  # fmt: skip
        of, types = self._events, self._facets.job_type_job
        kinds: dict[str, JobFacet] = {"jobType": types.JobTypeJobFacet(processing, "TAILRACE", "JOB")}
        which: RunState = of.RunState[state]
        event = of.RunEvent(
            eventType=which,
            eventTime=datetime.now(UTC).isoformat(),
            run=of.Run(run, facets),
            job=of.Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "tailrace", job, kinds),
            inputs=list(inputs),
            outputs=list(outputs),
            producer=PRODUCER,
        )
        self._sending.submit(self._send, event)

    def _send(self, event: Any) -> None:
        try:
            if self._client is None:
                from openlineage.client import OpenLineageClient

                self._client = OpenLineageClient()
            self._client.emit(event)
        except Exception as error:
            # An error in the lineage code must not make the run fail.
            if not self._warned:
                self._warned = True
                reason = next(iter(str(error).splitlines()), "")
                self._warn(
                    f"lineage was not sent ({type(error).__name__}: {reason}): the run goes on without; mend "
                    "OPENLINEAGE_URL or OPENLINEAGE_CONFIG, or set OPENLINEAGE_DISABLED=true"
                )

    def _own_facet(self, stages: Sequence[Definition], generations: Mapping[str, int], **more: Any) -> RunFacet:
        pipelines = {
            stage.name: {"fingerprint": stage.fingerprint, "generation": generations.get(stage.name)}
            for stage in stages
        }
        return cast("RunFacet", self._facets.RunFacet().with_additional_properties(pipelines=pipelines, **more))

    def _error_facet(self, reason: str) -> RunFacet:
        facet: RunFacet = self._facets.error_message_run.ErrorMessageRunFacet(reason, "Python")
        return facet

    def _source(self, source: Source) -> InputDataset:
        if not isinstance(source, Files):
            return self._events.InputDataset(f"kafka://{source.bootstrap.split(',')[0]}", source.topic)
        place = urlparse(source.folder)
        if place.scheme in ("", "file"):
            return self._events.InputDataset("file", str(Path(place.path).resolve()))
        return self._events.InputDataset(f"{place.scheme}://{place.netloc}", place.path.lstrip("/"))

    def _tables(self, make: Callable[..., D], contracts: Iterable[Contract]) -> list[D]:
        """Return tables as OpenLineage datasets: the warehouse is the namespace, and the name is the full name."""
        place, space = self.subject.settings.warehouse_uri, self.subject.settings.namespace
        return [make(place, f"{space}.{one.table}", facets=self._schema(one)) for one in contracts]

    def _schema(self, contract: Contract) -> dict[str, DatasetFacet]:
        fields = [self._field(name, column.type, column.doc) for name, column in contract.columns.items()]
        return {"schema": self._facets.schema_dataset.SchemaDatasetFacet(fields)}

    def _field(self, name: str, type: str, doc: str | None = None) -> Any:
        make = self._facets.schema_dataset.SchemaDatasetFacetFields
        if (element := element_type(type)) is not None:
            return make(name, "array", doc, fields=[self._field("element", element)])
        if (fields := struct_fields(type)) is not None:
            return make(name, "struct", doc, fields=[self._field(inner, own) for inner, own in fields.items()])
        return make(name, type, doc)
