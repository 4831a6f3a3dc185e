"""Run jobs as job runs of an EMR Serverless application; no part of a job runs on the calling machine.

EMR reports the state of a job run as a single word, and the run's log may arrive late. Each run therefore stores an
outcome (exit status and output) in S3 when it ends (`cli.runtime.cluster_entry`).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tailrace.aws.objects import AwsError, client, get, put
from tailrace.runners.exit_status import ExitStatus
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError, StreamJob, StreamState
from tailrace.runners.keeper import FINAL
from tailrace.runners.processes import find_error
from tailrace.runners.submit import last_object

ACTIVE = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING")
"""The states of a job run that has not ended yet."""

GRACE = 120
"""The maximum time in seconds that a stream has to end at an epoch boundary before it is killed."""

AGAIN = 5
"""The maximum number of times per hour that EMR restarts a failed stream.

If EMR no longer restarts the stream, the stream DAG restarts it.
"""


@dataclass(frozen=True)
class Application:
    """An EMR Serverless application and the settings for its job runs.

    `role` is the ARN of the job role. `place` is an S3 address with the entry points under `jobs/` (the project's
    `spark/jobs`); runs store outcomes under `outcomes/` and logs under `logs/`. `definitions` is the folder in which a
    driver finds the files with definitions. `environment` contains variables for the driver and the executors
    (`TAILRACE_...`), and `conf` contains additional Spark settings. `log_group` is a group in CloudWatch Logs to which
    the drivers also write their output; if `log_group` is empty, the drivers write their output to S3 only. Raises
    `AwsError` for invalid values.
    """

    id: str
    role: str
    place: str
    definitions: str = "pipelines"
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    log_group: str = ""

    def __post_init__(self) -> None:
        faults = []
        if not re.fullmatch(r"[0-9a-z]{1,64}", self.id):
            faults.append(f"id {self.id!r}: expected an application's, of small letters and digits")
        if not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", self.role):
            faults.append(f"role {self.role!r}: expected an IAM role's ARN")
        if not re.fullmatch(r"s3://[a-z0-9.-]+(/\S*)?", self.place):
            faults.append(f"place {self.place!r}: expected an address such as s3://bucket/tailrace")
        if not re.fullmatch(r"[\w./#-]{0,512}", self.log_group, re.ASCII):
            faults.append(f"log_group {self.log_group!r}: expected the name of a log group such as /tailrace/stream")
        # EMR splits the text with all variables and settings at spaces, so no value may contain a space.
        values = {**self.environment, **self.conf}
        faults += [f"{n}={v!r}: expected no space, quote or backslash" for n, v in values.items() if _broken(n + v)]
        if faults:
            raise AwsError("; ".join(faults))

    @property
    def parameters(self) -> str:
        """The arguments of spark-submit that set the environment variables and Spark's settings, as a single text."""
        conf = dict(self.conf)
        for name, value in self.environment.items():
            conf[f"spark.emr-serverless.driverEnv.{name}"] = value
            conf[f"spark.executorEnv.{name}"] = value
        return " ".join(f"--conf {name}={value}" for name, value in sorted(conf.items()))

    @property
    def monitoring(self) -> dict[str, Any]:
        """The destinations of the drivers' output: S3, and CloudWatch Logs if there is a `log_group`."""
        places: dict[str, Any] = {"s3MonitoringConfiguration": {"logUri": self.under("logs") + "/"}}
        if self.log_group:
            places["cloudWatchLoggingConfiguration"] = {
                "enabled": True,
                "logGroupName": self.log_group,
                "logTypes": {"SPARK_DRIVER": ["STDERR", "STDOUT"]},
            }
        return places

    def under(self, *parts: str) -> str:
        """Return the S3 address of an object under the address `place`."""
        return "/".join((self.place.rstrip("/"), *parts))

    def path_of(self, definition: str) -> str:
        """Return the path at which the driver finds a definition's file."""
        return f"{self.definitions}/{Path(definition).name}"


def _broken(value: str) -> bool:
    return bool(re.search(r"[\s'\"\\]", value))


@dataclass(frozen=True)
class _Run:
    """A job run, and the token that names the run's outcome in S3."""

    id: str
    token: str
    state: str
    details: str
    since: float

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


class EmrServerless:
    """A runner that submits jobs to an EMR Serverless application.

    `every` is the time between two checks of a job run's state, in seconds.
    """

    def __init__(self, application: Application, *, every: float = 5.0) -> None:
        self.application, self.every = application, every
        self._running: set[str] = set()
        self._cancelled = False

    @cached_property
    def emr(self) -> Any:
        """The client for EMR Serverless."""
        return client("emr-serverless")

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Submit a backfill and wait until it has ended; return the result for each stage."""
        there = job.model_copy(update={"definition": self.application.path_of(job.definition)})
        return JobOutcome.all_of(self._run_to_end("backfill", [*there.words, "--json"], tell))

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Submit maintenance and wait until it has ended; return its result."""
        return self._run_to_end("maintain", [self.application.path_of(job.definition), "--json"], tell)

    def stream(self, job: StreamJob, tell: Callable[[str], None], *, anew: bool = False) -> StreamState:
        """Start a stream, unless it is already running, as a job run in STREAMING mode.

        In STREAMING mode, EMR restarts a job run that has failed.
        """
        last = self._last(job)
        if last is not None and last.active:
            if not anew:
                return StreamState(state="running", run=last.id, since=last.since)
            self._stop(last, tell)
        ended = None
        if last is not None and not anew:
            if self._has_note(last, "stopped"):
                return StreamState(state="stopped")
            status, ended = self._end(last)
            if status in FINAL and not self._has_note(last, "told"):
                # Raise the error for an ended stream only once, so that the next call starts the stream again.
                self._add_note(last, "told")
                raise RunnerError(f"the stream ended: {ended}", again=False)
        there = job.model_copy(update={"definitions": tuple(map(self.application.path_of, job.definitions))})
        run = self._submit(
            "stream", there.words, _name(job), mode="STREAMING", retryPolicy={"maxFailedAttemptsPerHour": AGAIN}
        )
        tell(f"started job run {run}")
        return StreamState(state="started", run=run, since=time.time(), ended=ended)

    def stop_stream(self, job: StreamJob, tell: Callable[[str], None]) -> StreamState:
        """Cancel a running stream so that it can end at an epoch boundary, and mark the stream as stopped."""
        last = self._last(job)
        if last is not None:
            self._stop(last, tell)
            self._add_note(last, "stopped")
        return StreamState(state="stopped")

    def cancel(self) -> None:
        self._cancelled = True
        for run in tuple(self._running):
            self._cancel(run)

    def _run_to_end(self, command: str, words: Sequence[str], tell: Callable[[str], None]) -> dict[str, Any]:
        if self._cancelled:
            raise Cancelled("cancelled before it began")
        run = self._submit(command, words, f"tailrace {command}")
        self._running.add(run)
        try:
            tell(f"submitted job run {run}")
            ended = self._await_end(run, tell)
        finally:
            self._running.discard(run)
        if self._cancelled or ended.state == "CANCELLED":
            raise Cancelled("cancelled: nothing more is committed")
        status, reason = self._end(ended)
        if status not in (0, ExitStatus.GAVE_WAY):
            raise RunnerError(reason, again=status != ExitStatus.USAGE)
        return last_object(self._outcome(ended).get("out", ""))

    def _submit(self, command: str, words: Sequence[str], name: str, **more: Any) -> str:
        token = uuid.uuid4().hex
        outcome = self.application.under("outcomes", token)
        driver: dict[str, Any] = {
            "entryPoint": self.application.under("jobs", f"{command}.py"),
            "entryPointArguments": [f"--outcome={outcome}", *words],
        }
        if parameters := self.application.parameters:
            # Omit empty parameters, because EMR refuses an empty string.
            driver["sparkSubmitParameters"] = parameters
        overrides = {"monitoringConfiguration": self.application.monitoring}
        answer = self._call(
            "start_job_run", clientToken=token, executionRoleArn=self.application.role, name=name,
            jobDriver={"sparkSubmit": driver}, configurationOverrides=overrides,
            tags={"tailrace": command}, **more,
        )  # fmt: skip
        run: str = answer["jobRunId"]
        return run

    def _await_end(self, run: str, tell: Callable[[str], None]) -> _Run:
        state = ""
        while True:
            job_run = self._run(run)
            if job_run.state != state:
                state = job_run.state
                tell(f"job run {run} is {state.lower()}")
            if not job_run.active and job_run.state != "CANCELLING":
                return job_run
            time.sleep(self.every)

    def _run(self, run: str) -> _Run:
        answer = self._call("get_job_run", jobRunId=run)["jobRun"]
        words = answer["jobDriver"]["sparkSubmit"]["entryPointArguments"]
        token = next((w.rsplit("/", 1)[1] for w in words if w.startswith("--outcome=")), "")
        return _Run(run, token, answer["state"], answer.get("stateDetails") or "", answer["createdAt"].timestamp())

    def _last(self, job: StreamJob) -> _Run | None:
        """Return the active job run of a stream or, if no job run is active, the last job run.

        Returns None if the stream has no job run.
        """
        job_runs: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            answer = self._call("list_job_runs", **page)
            job_runs += [one for one in answer["jobRuns"] if one.get("name") == _name(job)]
            if not answer.get("nextToken"):
                break
            page = {"nextToken": answer["nextToken"]}
        if not job_runs:
            return None
        # If a job run is active, choose this job run, even if other job runs were submitted later.
        last = max(job_runs, key=lambda one: (one["state"] in ACTIVE, one["createdAt"]))
        return self._run(last["id"])

    def _end(self, run: _Run) -> tuple[int | None, str]:
        """Return the exit status of an ended run, and a line with the reason why the run ended.

        The exit status is None if the run stored no outcome.
        """
        outcome = self._outcome(run)
        if not outcome:
            return None, f"job run {run.id} {run.state.lower()}: {run.details or 'it left no outcome'}"
        reason = find_error(f"{outcome['out']}\n{outcome['err']}") or "it said nothing"
        return int(outcome["status"]), reason

    def _outcome(self, run: _Run) -> dict[str, Any]:
        text = get(self.application.under("outcomes", run.token)) if run.token else None
        outcome: dict[str, Any] = {} if text is None else json.loads(text)
        return outcome

    def _stop(self, run: _Run, tell: Callable[[str], None]) -> None:
        if run.active:
            tell(f"stopping job run {run.id} at the next epoch's boundary")
            self._cancel(run.id)
            self._await_end(run.id, tell)

    def _cancel(self, run: str) -> None:
        self._call("cancel_job_run", jobRunId=run, shutdownGracePeriodInSeconds=GRACE)

    def _has_note(self, run: _Run, note: str) -> bool:
        return get(self.application.under("outcomes", f"{run.token}.{note}")) is not None

    def _add_note(self, run: _Run, note: str) -> None:
        put(self.application.under("outcomes", f"{run.token}.{note}"), "")

    def _call(self, what: str, **words: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self.emr, what)(applicationId=self.application.id, **words)
        except ClientError as error:
            again = error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500
            raise RunnerError(f"EMR Serverless: {error.response['Error']['Message']}", again=again) from error
        except BotoCoreError as error:
            raise RunnerError(f"EMR Serverless cannot be asked ({error})") from error
        return answer


def _name(job: StreamJob) -> str:
    """Return the name that all job runs of a stream have in common."""
    return f"tailrace stream {job.name}"
