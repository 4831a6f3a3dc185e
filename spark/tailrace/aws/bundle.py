"""Bundle the files that a cluster and an Airflow need to run a project: `tailrace bundle`.

Building the same project on the same platform always gives the same bytes: the archives are sorted and contain no
times, owners or paths of this machine. The only exception is the path of the interpreter to which the environment's
`bin/python` links.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from tailrace.aws.objects import AwsError
from tailrace.aws.pins import Project, prefer, run_program
from tailrace.aws.upload import MANIFEST, list_files
from tailrace.aws.wheel import NAME, Wheel, copy_wheel, make_wheel
from tailrace.runners.entry_points import find_entry_points
from tailrace.toolchain import class_path, fetch, missing_jars, require_java

EPOCH = 315_532_800
"""The modification time of every file in an archive, in Unix seconds: 1980, the earliest time in a zip file."""

GROUPS = ("lake", "aws")
"""The groups of jars in every bundle."""

MWAA = "/usr/local/airflow/plugins"
"""The folder into which Amazon's Airflow unpacks plugins.zip."""

CONSTRAINTS = Path("/usr/local/airflow/dags/constraints-mwaa.txt")
"""The place of the file of constraints on Amazon's Airflow, which wants one in each file of requirements. It keeps
Airflow's version.
"""

AIRFLOW = "apache-airflow"

_LEFT = {"__pycache__", "target", "logs", "dbt_packages", ".DS_Store"}
"""The names of files and folders that programs create in the project's folders, and that are not part of a bundle."""


@dataclass(frozen=True)
class ClusterBundle:
    """The parts of a bundle.

    `root` is the folder of the project, and `jars` is the folder of the pinned jars. `python` is the interpreter for
    the environment. The interpreter must be built for the platform on which the bundle runs, and that platform must
    have the interpreter at the same path. `extras` are the extras of tailrace that the drivers need, and `groups` are
    the groups of jars. `spark` adds pyspark, which EMR already provides.

    `wheel` is the file of a wheel of tailrace; without it, the wheel is made of what is installed. `contracts` is the
    folder of the contracts. `airflow` is the version of the Airflow that runs the DAGs, and `constraints` is a file
    with the versions that are installed there, which the requirements then prefer. If `workers` is False, the bundle
    has no environment and no jars, because the workers run an image that has both. Raises `AwsError` if `root` is not a
    project.
    """

    root: Path
    jars: Path
    python: str = sys.executable
    extras: tuple[str, ...] = ("aws",)
    groups: tuple[str, ...] = GROUPS
    spark: bool = False
    wheel: Path | None = None
    contracts: Path | None = None
    airflow: str | None = None
    constraints: Path | None = None
    workers: bool = True

    def __post_init__(self) -> None:
        Project(self.root)

    def build(self, out: Path, tell: Callable[[str], None]) -> None:
        """Build the bundle in a folder, and replace any old bundle there.

        Raises `AwsError` if a part cannot be built, or if the folder contains files but no bundle. Raises
        `ToolchainError` if a jar cannot be fetched.
        """
        if out.exists() and any(out.iterdir()) and not (out / MANIFEST).is_file():
            raise AwsError(f"{out} holds something that is no bundle: give another folder by --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bundle-") as name:
            made, scratch = Path(name) / "bundle", Path(name) / "scratch"
            for folder in (made, scratch):
                folder.mkdir()
            tell("the wheel, and what it needs")
            wheel = self._wheel(made)
            self._airflow_version_fits(wheel)
            preferred = self._project.tested()
            self._requirements(made, wheel, preferred)
            if self.workers:
                tell(f"the environment of the drivers: {', '.join(self._extras)}")
                self._environment(made, scratch, wheel, preferred)
                tell(f"jars: {', '.join(self.groups)}")
                self._jars(made)
            tell("jobs, definitions and DAGs")
            self._sources(made)
            self._manifest(made, wheel)
            shutil.rmtree(out, ignore_errors=True)
            made.replace(out)

    @property
    def _project(self) -> Project:
        return Project(self.root)

    @property
    def _extras(self) -> tuple[str, ...]:
        # The executors need the packages of the extra `spark`, above all pandas. Only pyspark itself may be left out.
        return tuple(dict.fromkeys((*self.extras, "spark")))

    def _wheel(self, made: Path) -> Wheel:
        if self.wheel is not None:
            return copy_wheel(self.wheel, made)
        wheel = make_wheel(made, self._build)
        (made / ".gitignore").unlink(missing_ok=True)
        return wheel

    def _build(self, source: Path, to: Path) -> None:
        self._project.uv("build", "--wheel", "--out-dir", to, source)

    def _airflow_version_fits(self, wheel: Wheel) -> None:
        (wanted,) = (one.specifier for one in wheel.needed("airflow") if one.name == AIRFLOW)
        if self.airflow is None:
            return
        try:
            fits = wanted.contains(self.airflow)
        except InvalidVersion:
            fits = False
        if not fits:
            raise AwsError(
                f"--airflow {self.airflow}: Tailrace's DAGs need Airflow {wanted}; make the environment with such a "
                "version, or run the DAGs in an Airflow of your own"
            )

    def _asked(self, wheel: Wheel, extras: Iterable[str], *without: str) -> list[str]:
        """Return what the project and Tailrace with some extras need, except for some packages, as requirements."""
        found = [str(one) for one in self._project.needs if canonicalize_name(one.name) not in without]
        for extra in extras:
            found += [str(one) for one in wheel.needed(extra, *without)]
        return [f"{NAME} @ {wheel.file.resolve().as_uri()}", *found]

    def _requirements(self, made: Path, wheel: Wheel, preferred: str) -> None:
        project, extras = self._project, tuple(dict.fromkeys(("airflow", *self.extras)))
        version = f"=={self.airflow}" if self.airflow else ""
        if self.constraints is not None:
            preferred = prefer(_text(self.constraints), preferred)
        whole = project.pins([*self._asked(wheel, (*extras, "sqlite")), f"{AIRFLOW}{version}"], preferred)
        (made / "requirements.txt").write_text(whole)
        # Leave out Airflow, because Amazon's Airflow is already installed when the requirements are installed. Leave
        # out the extra `sqlite`, because no catalog is in SQLite there, and SQLAlchemy's version is Airflow's concern.
        extras = tuple(extra for extra in extras if extra != "sqlite")
        beside = project.pins([*self._asked(wheel, extras), f"{AIRFLOW}{version}"], preferred)
        pins = project.pins(self._asked(wheel, extras, AIRFLOW), beside, limits=beside)
        (fixed,) = (line for line in beside.splitlines() if line.startswith(f"{AIRFLOW}=="))
        head = f"# For Airflow {fixed.partition('==')[2].partition(' ')[0]}.\n--constraint {CONSTRAINTS}\n"
        (made / "requirements-mwaa.txt").write_text(f"{head}{pins}{MWAA}/{wheel.file.name}\n")
        (made / "dags").mkdir()
        (made / "dags" / CONSTRAINTS.name).write_text(f"{fixed}\n")
        with zipfile.ZipFile(made / "plugins.zip", "w") as file:
            held = zipfile.ZipInfo(wheel.file.name)
            held.external_attr = 0o644 << 16
            file.writestr(held, wheel.file.read_bytes())

    def _environment(self, made: Path, scratch: Path, wheel: Wheel, preferred: str) -> None:
        place, pins = scratch / "environment", scratch / "requirements.txt"
        asked = self._asked(wheel, self._extras, *(() if self.spark else ("pyspark",)))
        pins.write_text(self._project.pins(asked, preferred, "--generate-hashes"))
        uv = self._project.uv
        uv("venv", "--relocatable", "--python", self.python, place)
        into = ("pip", "install", "--python", place / "bin" / "python", "--no-deps")
        uv(*into, "--require-hashes", "-r", pins)
        # Install the wheel by name, because an installation by path would record the path on this machine.
        uv(*into, "--no-cache", "--no-index", "--find-links", made, f"{NAME}=={wheel.version}")
        _forget(place, "uv_cache.json")
        write_archive(made / "environment.tar.gz", {"": place})

    def _jars(self, made: Path) -> None:
        if missing_jars(self.jars, self.groups):
            fetch(self.jars, self.groups, require_java())
        (made / "jars").mkdir()
        for path in class_path(self.jars, self.groups):
            shutil.copyfile(path, made / "jars" / path.name)

    def _sources(self, made: Path) -> None:
        copy_files(find_entry_points(), made / "jobs", "*.py")
        copy_files(self.root / "pipelines", made / "pipelines", "**/*")
        # Keep the folders next to each other as in the project, because a DAG finds its definition by a path relative
        # to the DAG's file.
        for name in ("dags", "pipelines", "dbt"):
            copy_files(self.root / name, made / "dags" / name, "**/*")
        copy_files(self.contracts or self.root / "iceberg_schemas", made / "dags" / "iceberg_schemas", "**/*")
        (made / "dags" / "iceberg_schemas").mkdir(exist_ok=True)
        (made / "dags" / ".airflowignore").write_text("pipelines/\ndbt/\n")
        write_archive(
            made / "definitions.tar.gz",
            {name: made / "dags" / name for name in ("pipelines", "iceberg_schemas")},
        )

    def _manifest(self, made: Path, wheel: Wheel) -> None:
        ask = "import json, sys, sysconfig; print(json.dumps([sys.version.split()[0], sysconfig.get_platform()]))"
        python, platform = json.loads(run_program([self.python, "-c", ask]))
        commit, changed = self._commit()
        about = {
            "version": wheel.version, "commit": commit, "changed": changed, "python": python,
            "platform": platform, "extras": [*self.extras], "jars": [*self.groups], "pyspark": self.spark,
            "workers": self.workers,
        }  # fmt: skip
        write_manifest(made, about)

    def _commit(self) -> tuple[str | None, bool | None]:
        """Return the project's commit, and whether it has uncommitted changes. Without git, both values are None."""
        git = ["git", "-C", str(self.root)]
        try:
            head = run_program([*git, "rev-parse", "HEAD"]).strip()
            return head, bool(run_program([*git, "status", "--porcelain"]).strip())
        except AwsError:
            return None, None


def _text(file: Path) -> str:
    """Return the text of the file of constraints. Raises `AwsError` if the file cannot be read."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise AwsError(f"--constraints {file}: {reason}") from None


def write_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Write a bundle's manifest: the values of `about`, and the sha256 and the size in bytes of each file."""
    manifest = {**about, "files": list_files(folder)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def copy_files(folder: Path, to: Path, pattern: str) -> None:
    """Copy the matching files of a project's folder, except for files that programs have created there."""
    for path in sorted(folder.glob(pattern)):
        below = path.relative_to(folder)
        if path.is_file() and not _LEFT & {*below.parts}:
            (to / below).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / below)


def write_archive(file: Path, folders: Mapping[str, Path]) -> None:
    """Pack folders into an archive. The keys of `folders` are the names of the folders in the archive.

    The entries are sorted. The archive contains no times, owners or paths of this machine.
    """
    with (
        file.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, folder in sorted(folders.items()):
            for path in _walk(folder):
                held = tar.gettarinfo(path, arcname=os.path.join(name, path.relative_to(folder)))
                held.uid = held.gid = 0
                held.uname = held.gname = ""
                held.mtime = EPOCH
                held.mode = 0o755 if held.isdir() or held.mode & 0o100 else 0o644
                if held.isreg() or held.islnk():
                    # Pack a hard link as a regular file, because the same file may be a hard link only on some
                    # machines.
                    held.type, held.size, held.linkname = tarfile.REGTYPE, path.stat().st_size, ""
                    with path.open("rb") as content:
                        tar.addfile(held, content)
                else:
                    tar.addfile(held)


def _forget(environment: Path, name: str) -> None:
    """Delete the file `name`, which contains the installation time, from each package of an environment."""
    for noted in environment.glob(f"lib/*/site-packages/*.dist-info/{name}"):
        noted.unlink()
        record = noted.with_name("RECORD")
        lines = record.read_text().splitlines(keepends=True)
        # Replace the file instead of changing it, because the file may be a hard link into the installer's cache.
        record.unlink()
        record.write_text("".join(line for line in lines if f"/{name}," not in line))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in {"__pycache__", ".lock"}:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def conf(place: str, files: Iterable[str]) -> dict[str, str]:
    """Return the settings with which Spark on EMR Serverless uses the bundle that was uploaded to `place`.

    `files` are the paths in the bundle's manifest. The driver finds the definitions in `definitions/pipelines` of its
    working folder, and the contracts in `definitions/iceberg_schemas`.
    """
    at, python = place.rstrip("/"), "./environment/bin/python"
    return {
        "spark.archives": f"{at}/environment.tar.gz#environment,{at}/definitions.tar.gz#definitions",
        "spark.jars": ",".join(f"{at}/{path}" for path in sorted(files) if path.startswith("jars/")),
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": python,
        "spark.executorEnv.PYSPARK_PYTHON": python,
    }
