"""The demo's stream and a backfill beside it, on the lake that Terraform has made, told where it is by its outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.terminal.usage import ExitStatus
from tailrace.generate.flights import landing_cuts, write_files
from tailrace.generate.flights import load as load_flights
from tailrace.model.base.time import hours
from tests.support.faults.racing import next_epoch
from tests.support.services.aws import aws
from tests.support.services.terraform import Terraform
from tests.support.waiting import PATIENT

pytestmark = [pytest.mark.system, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FIRST, LAST = date(2013, 3, 6), date(2013, 3, 9)


def test_the_demo_runs_on_what_terraform_made_by_its_outputs_alone(tmp_path: Path) -> None:
    records = load_flights(FIRST, LAST)
    write_files(records, tmp_path / "landing", landing_cuts(FIRST, LAST, every=hours(8)))
    with aws() as cloud:
        terraform, where = Terraform(tmp_path / "terraform", cloud.environment), "envs/dev"
        terraform.on_a_test_server(where)
        (terraform.at(where) / "given.auto.tfvars").write_text(f'region = "{cloud.region}"\n')
        terraform.init(where, "-reconfigure")
        terraform.run(where, "apply", "-auto-approve", "-input=false", "-no-color")
        told: dict[str, str] = terraform.output(where, "job_environment")
        assert told["TAILRACE_WAREHOUSE"].startswith("s3://")
        assert told["TAILRACE_CATALOG_URI"].startswith("glue://")
        # Of a machine that runs it, and not of the lake.
        ours = {"TAILRACE_DRIVER_MEMORY": "1g", "TAILRACE_SHUFFLE_PARTITIONS": "1"}
        env = os.environ | cloud.environment | told | ours

        def start(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "tailrace.cli.main", words[0], str(ROOT / "pipelines" / "flights.py")]
            return subprocess.Popen(
                [*command, *words[1:], "--json"], cwd=tmp_path, env=env, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

        def ended(process: subprocess.Popen[str]) -> str:
            out, err = process.communicate(timeout=2 * PATIENT)
            assert process.returncode == ExitStatus.OK, f"{process.args!r}\n{out}\n{err}"
            return out

        stream = start("stream", "--from", str(tmp_path / "landing"), "--per-epoch", "1", "--once")
        next_epoch(stream)
        beside = start("backfill", "--from", "2013-03-06", "--reason", "beside the stream")
        ended(beside)
        ended(stream)
        done = json.loads(ended(start("backfill", "--from", "2013-03-06", "--reason", "all of it")))
        assert done
        found: dict[str, Any] = json.loads(ended(start("audit")))
        assert found["ok"]
        assert found["counts"]["records"] == len(records)
        s3 = cloud.client("s3")
        bucket = told["TAILRACE_WAREHOUSE"].removeprefix("s3://").partition("/")[0]
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
        assert any("_checkpoints" in key for key in keys)
        tables = {
            one["Name"] for one in cloud.client("glue").get_tables(DatabaseName=told["TAILRACE_NAMESPACE"])["TableList"]
        }
        assert {"flights", "hourly_departures", "hourly_departures__ledger"} <= tables
