"""The checks of `tailrace airflow check`: versions, DAG files, connections, and what the runners of the DAGs need."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, metadata
from pathlib import Path

from airflow.sdk import DAG, Connection
from packaging.specifiers import SpecifierSet

import tailrace
from tailrace.airflow.connection import TYPE, load_settings, settings_of
from tailrace.airflow.sensors import WaitSensor
from tailrace.airflow.stream_tasks import StreamOperator
from tailrace.airflow.tasks import ReportingOperator, RunnerOperator
from tailrace.doctor.findings import Finding, UnseenError, WrongError, run_check
from tailrace.doctor.lake_checks import check_folder
from tailrace.doctor.machine_checks import check_installation, check_package
from tailrace.model.base.errors import RemedyError, line_of
from tailrace.runners.jobs import Runner
from tailrace.runners.local import Local
from tailrace.runners.processes import private_folder
from tailrace.runners.submit import Submit
from tailrace.runners.venv import Venv
from tailrace.settings import Settings

PLUGIN, PROVIDER = "airflow.plugins", "apache_airflow_provider"
"""The groups of entry points in which Airflow finds Tailrace."""

_PATIENCE = 60.0
"""The maximum time in seconds to wait for another process of Python or Airflow."""

_PROBE = """
import json, sys
from dataclasses import asdict
from functools import partial
import tailrace
from tailrace.doctor.findings import run_check
from tailrace.doctor.machine_checks import check_package
checks = [asdict(run_check(name, partial(check_package, name))) for name in sys.argv[1:]]
print(json.dumps({"version": tailrace.__version__, "checks": checks}))
"""


@dataclass
class Dags:
    """What the DAG files use: connections (None is the environment), runners, and folders that streams read.

    `connections` maps each connection to the places of the definitions that tasks with this connection compute.
    """

    findings: list[Finding] = field(default_factory=list)
    connections: dict[str | None, set[str]] = field(default_factory=dict)
    runners: list[Runner] = field(default_factory=list)
    streams: bool = False
    folders: set[Path] = field(default_factory=set)

    def note(self, dag: DAG) -> None:
        """Note what the tasks of a DAG use."""
        for task in dag.tasks:
            if isinstance(task, ReportingOperator | WaitSensor):
                places = [getattr(task, "definition", None)]
                if isinstance(task, StreamOperator):
                    places += task.job.definitions
                self.connections.setdefault(task.conn_id, set()).update(one for one in places if isinstance(one, str))
            if isinstance(task, RunnerOperator):
                self._note_runner(task)
            if isinstance(task, StreamOperator):
                self.streams = True
                job = task.job
                folders = [job.folder, *(source.folder for source in job.sources.values())]
                self.folders |= {Path(one) for one in folders if one is not None and "://" not in one}

    def _note_runner(self, task: RunnerOperator) -> None:
        try:
            runner = task.runner()
        except Exception as error:
            said = f"runner= of the DAG {task.dag_id} fails: {line_of(error)}"
            self.findings.append(Finding("runner", "wrong", said, "correct the function in the DAG's file"))
            return
        known = {(type(one), str(getattr(one, "place", ""))) for one in self.runners}
        if (type(runner), str(getattr(runner, "place", ""))) not in known:
            self.runners.append(runner)


def check_versions() -> Iterator[Finding]:
    """Check the versions of Python and of the packages, and that Airflow finds the plugin and the provider."""
    yield run_check("python", _python)
    yield run_check("apache-airflow", partial(require_package, "apache-airflow"))
    yield run_check("pyiceberg", partial(require_package, "pyiceberg"))
    # Without this package, the form takes any text for an instant.
    yield run_check("rfc3339-validator", partial(require_package, "rfc3339-validator"))
    yield run_check("provider", _entry_points)


def require_package(name: str) -> str:
    """Check that a package is installed, in a version that Tailrace allows; return a text with the version."""
    try:
        return check_package(name)
    except UnseenError as error:
        raise WrongError(error.found, error.mend) from None


def read_dags(folder: Path) -> Dags:
    """Parse the DAG files of a folder that mention Tailrace, as Airflow does, and return what they use."""
    found = Dags()
    try:
        files = sorted(file for file in folder.rglob("*.py") if b"tailrace" in file.read_bytes())
        if not folder.is_dir():
            raise FileNotFoundError(2, "there is no such folder")
        os.listdir(folder)
    except OSError as error:
        mend = "let who runs this read it (chmod), pass --dags, or set AIRFLOW__CORE__DAGS_FOLDER"
        place = error.filename or folder
        found.findings.append(Finding("dags", "wrong", f"{place} cannot be read ({error.strerror})", mend))
        return found
    if not files:
        mend = "write one (`tailrace init` makes an example), pass --dags, or set AIRFLOW__CORE__DAGS_FOLDER"
        found.findings.append(Finding("dags", "wrong", f"no file in {folder} makes DAGs with Tailrace", mend))
    for file in files:
        found.findings.append(run_check(f"dags: {file.name}", partial(_read_file, file, folder, found), _MEND_FILE))
    return found


_MEND_FILE = "correct the file, or install what it imports into Airflow's environment"


def _read_file(file: Path, folder: Path, found: Dags) -> str:
    """Run a DAG file and note what its DAGs use; return a text with the ids of the DAGs."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        # What a file prints is no part of the report.
        with redirect_stdout(sys.stderr):
            scope = runpy.run_path(str(file))
    except SystemExit as error:
        raise WrongError(f"it ends Python (sys.exit({error.code!r}))", _MEND_FILE) from None
    except RemedyError:
        raise
    except Exception as error:
        raise WrongError(f"{type(error).__name__}: {line_of(error)}", _MEND_FILE) from None
    finally:
        sys.path[:] = before
    dags = {one.dag_id: one for one in scope.values() if isinstance(one, DAG)}
    for dag in dags.values():
        found.note(dag)
    return ", ".join(sorted(dags)) or "no DAG"


def connection_settings(conn_id: str | None) -> Settings:
    """Return the settings of a connection, from wherever Airflow holds it, or those of the environment for None."""
    if conn_id is None:
        return Settings()
    from airflow.sdk.exceptions import AirflowException

    try:
        return load_settings(conn_id)
    except (AirflowException, ImportError):
        # Outside of a task, only Airflow's own command reads the connections of its database.
        return settings_of(_stored(conn_id))


def _stored(conn_id: str) -> Connection:
    command = [sys.executable, "-m", "airflow", "connections", "get", conn_id, "--output", "json"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    try:
        (held,) = json.loads(done.stdout[done.stdout.index("[") :])
    except ValueError:
        raise WrongError(
            f"Airflow has no connection {conn_id}",
            f"create it under Admin, Connections, or with `airflow connections add {conn_id} --conn-type {TYPE}`",
        ) from None
    extra = held.get("extra_dejson") or {}
    return Connection(
        conn_id=conn_id,
        conn_type=held.get("conn_type"),
        login=held.get("login") or None,
        password=held.get("password") or None,
        extra=extra if isinstance(extra, str) else json.dumps(extra),
    )


def check_runners(dags: Dags, lakes: Iterable[Settings]) -> Iterator[Finding]:
    """Check what the DAGs' runners need on this machine for these lakes, and the folders that streams read."""
    settings = list(lakes)
    for runner in dags.runners:
        match runner:
            case Venv():
                names = _needed(dags, settings)
                yield run_check(f"venv {runner.place}", partial(_venv, runner, names))
            case Submit():
                yield run_check("spark-submit", partial(_submit, runner))
            case Local():
                yield from _local(dags, settings)
            case _:
                why = f"runs of {type(runner).__name__} take place elsewhere"
                yield Finding(
                    "runner", "not looked at", why, "`tailrace doctor --application ID` looks at EMR Serverless"
                )
    if any(isinstance(runner, Local | Venv | Submit) for runner in dags.runners):
        yield run_check("private folder", lambda: f"{private_folder()} is this user's alone")
    if dags.streams:
        for one in settings:
            if one.checkpoints is not None and not str(one.checkpoints).startswith("s3:"):
                yield run_check("checkpoint folder", partial(_checkpoints, one))
    for folder in sorted(dags.folders):
        yield run_check(f"landing {folder.name}", partial(_landing, folder))


def _needed(dags: Dags, settings: Iterable[Settings]) -> list[str]:
    """List the packages that runs of the DAGs need beside what every installation has."""
    names = ["pyiceberg", "duckdb"]
    if any(not one.catalog_uri or one.catalog_uri.startswith(("sqlite:", "postgresql:")) for one in settings):
        names.append("sqlalchemy")
    if dags.streams or any(one.engine == "spark" for one in settings):
        names.append("pyspark")
    return names


def _local(dags: Dags, settings: list[Settings]) -> Iterator[Finding]:
    names = _needed(dags, settings)
    for name in names:
        if name != "pyiceberg":
            yield run_check(name, partial(require_package, name))
    if "pyspark" in names:
        for finding in check_installation(settings[0] if settings else Settings()):
            if finding.name in ("java", "jars"):
                yield finding


def _venv(runner: Venv, names: list[str]) -> str:
    own = tailrace.__version__
    again = f"`{runner.python} -m pip install 'tailrace[spark,java,sqlite]=={own}'`, or name another folder in Venv(…)"
    try:
        done = subprocess.run(
            [str(runner.python), "-P", "-c", _PROBE, *names], env=runner.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except OSError as error:
        raise WrongError(f"{runner.python} cannot be run ({error.strerror})", again) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise WrongError(f"{runner.python} cannot import tailrace ({last})", again)
    told = json.loads(done.stdout.splitlines()[-1])
    if told["version"] != own:
        raise WrongError(f"it has tailrace {told['version']}, and Airflow's environment has {own}", again)
    lacking = [f"{one['name']}: {one['found']}" for one in told["checks"] if one["state"] != "ok"]
    if lacking:
        raise WrongError("; ".join(lacking), again)
    return f"tailrace {own}, with {', '.join(names)}"


def _submit(runner: Submit) -> str:
    command = shutil.which(runner.start[0])
    if command is None:
        mend = "install Spark's client here, or name its path: Submit(…, command=…)"
        raise WrongError(f"{runner.start[0]} is no command here", mend)
    lacking = [name for name in ("backfill.py", "maintain.py", "stream.py") if not (runner.jobs / name).is_file()]
    if lacking:
        raise WrongError(
            f"{runner.jobs} has no {', '.join(lacking)}", "name the folder of the entry points in Submit(…)"
        )
    return f"{command}, with the entry points in {runner.jobs}"


def _checkpoints(settings: Settings) -> str:
    try:
        return check_folder(settings.model_copy(update={"warehouse": settings.checkpoints}))
    except WrongError as error:
        raise WrongError(error.found, error.mend.replace("TAILRACE_WAREHOUSE", "TAILRACE_CHECKPOINTS")) from None


def _landing(folder: Path) -> str:
    try:
        os.listdir(folder)
    except OSError as error:
        mend = "make it, let who runs this read it (chmod), or correct folder= in the DAG's file"
        raise WrongError(f"{folder} cannot be read ({error.strerror})", mend) from None
    return f"{folder} can be read"


def _python() -> str:
    present = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = metadata("tailrace")["Requires-Python"]
    except PackageNotFoundError:
        raise UnseenError(f"{present}; tailrace is not installed, which would say what it needs", "") from None
    if wanted and present not in SpecifierSet(wanted):
        raise WrongError(f"{present}, the project needs {wanted}", "run Airflow with such a Python")
    return f"{present}, within {wanted}"


def _entry_points() -> str:
    lacking = [group for group in (PLUGIN, PROVIDER) if not _has_entry_point(group)]
    if lacking:
        raise WrongError(
            f"Airflow does not find Tailrace: no entry point in {', '.join(lacking)}",
            "install the package with pip; its folder in PYTHONPATH is not enough",
        )
    return "Airflow finds the plugin and the provider"


def _has_entry_point(group: str) -> bool:
    return any(one.value.startswith("tailrace.") for one in entry_points(group=group))
