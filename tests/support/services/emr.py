"""EMR Serverless on this machine: its API by moto, and the job runs that it is asked for by a real spark-submit."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from moto.emrserverless.models import EMRServerlessBackend, emrserverless_backends

from tests.support.services.aws import ACCOUNT, REGION, aws

ROLE = f"arn:aws:iam::{ACCOUNT}:role/tailrace-job"


@dataclass
class Emr:
    """A running one, with an application and a bucket. `options` are more of spark-submit's arguments."""

    folder: Path
    options: Sequence[str] = ()
    application: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def backend(self) -> EMRServerlessBackend:
        return emrserverless_backends[ACCOUNT][REGION]

    def prepare(self, jobs: Path) -> None:
        """Make the bucket with the entry points in it, and the application."""
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": REGION})
        for file in jobs.glob("*.py"):
            s3.put_object(Bucket="lake", Key=f"tailrace/jobs/{file.name}", Body=file.read_bytes())
        made = boto3.client("emr-serverless").create_application(name="lake", releaseLabel="emr-7.12.0", type="SPARK")
        self.application = made["applicationId"]
        # moto knows of an application without job runs by none of them.
        self.backend.job_runs[self.application] = []

    def work(self) -> None:
        """Run what is asked for, until it is over."""
        while not self.over.wait(0.1):
            for run in tuple(self.backend.job_runs[self.application]):
                process = self.processes.get(run.id)
                if process is None and run.state == "CANCELLING":
                    run.state = "CANCELLED"
                elif process is None and run.state == "SUBMITTED":
                    run.created_at, run.state = datetime.now(UTC), "RUNNING"
                    self.processes[run.id] = self._started(run)
                elif process is not None and run.state in ("RUNNING", "CANCELLING"):
                    self._followed(run, process)

    def _started(self, run: Any) -> subprocess.Popen[bytes]:
        driver = run.job_driver["sparkSubmit"]
        bucket, _, key = driver["entryPoint"].removeprefix("s3://").partition("/")
        entry = self.folder / f"{run.id}.py"
        entry.write_bytes(boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
        confs = shlex.split(driver["sparkSubmitParameters"])
        variables = [one.partition("driverEnv.")[2] for one in confs if "driverEnv." in one]
        env = os.environ | dict(one.split("=", 1) for one in variables)
        submit = str(Path(sys.executable).with_name("spark-submit"))
        command = [submit, "--master", "local[1]", *self.options, *confs, str(entry), *driver["entryPointArguments"]]
        with (self.folder / f"{run.id}.out").open("wb") as out:
            return subprocess.Popen(command, cwd=self.folder, env=env, stdout=out, stderr=out, start_new_session=True)

    def _followed(self, run: Any, process: subprocess.Popen[bytes]) -> None:
        if run.state == "CANCELLING" and process.poll() is None and run.state_details != "told":
            run.state_details = "told"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        if process.poll() is not None:
            ended = {"RUNNING": "SUCCESS" if process.returncode == 0 else "FAILED", "CANCELLING": "CANCELLED"}
            run.state_details = f"the driver ended with status {process.returncode}"
            run.state = ended[run.state]

    def lose(self, run: str) -> None:
        """The machine that a job run is on is no more."""
        os.killpg(self.processes[run].pid, signal.SIGKILL)


@contextmanager
def emr(folder: Path, jobs: Path, options: Sequence[str], monkeypatch: Any) -> Iterator[Emr]:
    """EMR Serverless for whoever asks boto3 in this process or in one that it starts."""

    def cancel(backend: Any, application_id: str, job_run_id: str) -> tuple[str, str]:
        run = backend.get_job_run(application_id, job_run_id)
        # moto takes it for cancelled at once; EMR gives it time to end.
        run.state = "CANCELLING"
        return application_id, job_run_id

    with aws() as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(EMRServerlessBackend, "cancel_job_run", cancel)
        # To moto a job run has succeeded as soon as it is submitted.
        monkeypatch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")
        made = Emr(folder, options)
        made.prepare(jobs)
        worker = threading.Thread(target=made.work)
        worker.start()
        yield made
        made.over.set()
        worker.join()
        for process in made.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
