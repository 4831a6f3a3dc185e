"""Bundle the files that a cluster and an Airflow need to run this checkout: `python -m tailrace.aws.bundle`.

Building the same tree on the same platform always gives the same bytes: the archives are sorted and contain no times,
owners or paths of this machine. The only exception is the path of the interpreter to which the environment's
`bin/python` links.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tailrace
from tailrace.aws.objects import AwsError
from tailrace.aws.upload import MANIFEST, list_files, split_address, upload_bundle
from tailrace.model.base.errors import TailraceError
from tailrace.settings import Settings
from tailrace.toolchain import class_path, fetch, missing_jars, require_java

EPOCH = 315_532_800
"""The modification time of every file in an archive, in Unix seconds: 1980, the earliest time in a zip file."""

GROUPS = ("lake", "aws")
"""The groups of jars in every bundle."""

MWAA = "/usr/local/airflow/plugins"
"""The folder into which Amazon's Airflow unpacks plugins.zip."""

_LEFT = {"__pycache__", "target", "logs", "dbt_packages", ".DS_Store"}
"""The names of files and folders that programs create in the project's folders, and that are not part of a bundle."""


@dataclass(frozen=True)
class ClusterBundle:
    """The parts of a bundle.

    `root` is the checkout, and `jars` is the folder of the pinned jars. `python` is the interpreter for the
    environment. The interpreter must be built for the platform on which the bundle runs, and that platform must have
    the interpreter at the same path. `extras` are the extras of tailrace that the drivers need, and `groups` are the
    groups of jars. `spark` adds pyspark, which EMR already provides. Raises `AwsError` if `root` is not a checkout.
    """

    root: Path
    jars: Path
    python: str = sys.executable
    extras: tuple[str, ...] = ("aws",)
    groups: tuple[str, ...] = GROUPS
    spark: bool = False

    def __post_init__(self) -> None:
        for name in ("pyproject.toml", "uv.lock", "spark/jobs"):
            if not (self.root / name).exists():
                raise AwsError(f"{self.root} has no {name}: a bundle is made of a checkout of the project")

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
            self._requirements(made, wheel)
            tell(f"the environment of the drivers: {', '.join(self._extras)}")
            self._environment(made, scratch, wheel)
            tell(f"jars: {', '.join(self.groups)}")
            self._jars(made)
            tell("jobs, definitions and DAGs")
            self._sources(made)
            self._manifest(made)
            shutil.rmtree(out, ignore_errors=True)
            made.replace(out)

    @property
    def _extras(self) -> tuple[str, ...]:
        # The executors need the packages of the extra `spark`, above all pandas. Only pyspark itself may be left out.
        return tuple(dict.fromkeys((*self.extras, "spark")))

    def _wheel(self, made: Path) -> Path:
        self._uv("build", "--wheel", "--out-dir", made)
        (made / ".gitignore").unlink(missing_ok=True)
        (wheel,) = made.glob("*.whl")
        return wheel

    def _requirements(self, made: Path, wheel: Path) -> None:
        extras = ("airflow", *self.extras)
        requirements = self._export_pins((*extras, "sqlite"), "--no-hashes")
        (made / "requirements.txt").write_text(requirements)
        # Leave out Airflow, because Amazon's Airflow is already installed when the requirements are installed.
        requirements = self._export_pins(extras, "--no-hashes", "--prune", "apache-airflow")
        (made / "requirements-mwaa.txt").write_text(f"{requirements}{MWAA}/{wheel.name}\n")
        with zipfile.ZipFile(made / "plugins.zip", "w") as file:
            held = zipfile.ZipInfo(wheel.name)
            held.external_attr = 0o644 << 16
            file.writestr(held, wheel.read_bytes())

    def _environment(self, made: Path, scratch: Path, wheel: Path) -> None:
        place, pins = scratch / "environment", scratch / "requirements.txt"
        pins.write_text(self._export_pins(self._extras, *(() if self.spark else ("--prune", "pyspark"))))
        self._uv("venv", "--relocatable", "--python", self.python, place)
        into = ("pip", "install", "--python", place / "bin" / "python", "--no-deps")
        self._uv(*into, "--require-hashes", "-r", pins)
        # Install the wheel by name, because an installation by path would record the path on this machine.
        self._uv(*into, "--no-cache", "--no-index", "--find-links", made, f"tailrace=={tailrace.__version__}")
        _forget(place, "uv_cache.json")
        write_archive(made / "environment.tar.gz", {"": place})

    def _jars(self, made: Path) -> None:
        if missing_jars(self.jars, self.groups):
            fetch(self.jars, self.groups, require_java())
        (made / "jars").mkdir()
        for path in class_path(self.jars, self.groups):
            shutil.copyfile(path, made / "jars" / path.name)

    def _sources(self, made: Path) -> None:
        copy_files(self.root / "spark" / "jobs", made / "jobs", "*.py")
        copy_files(self.root / "pipelines", made / "pipelines", "*.py")
        # Keep the folders next to each other as in the checkout, because a DAG finds its definition by a path relative
        # to the DAG's file.
        for name in ("dags", "pipelines", "iceberg_schemas", "dbt"):
            copy_files(self.root / name, made / "dags" / name, "**/*")
        (made / "dags" / ".airflowignore").write_text("pipelines/\ndbt/\n")
        write_archive(
            made / "definitions.tar.gz",
            {name: made / "dags" / name for name in ("pipelines", "iceberg_schemas")},
        )

    def _manifest(self, made: Path) -> None:
        ask = "import json, sys, sysconfig; print(json.dumps([sys.version.split()[0], sysconfig.get_platform()]))"
        python, platform = json.loads(_run([self.python, "-c", ask]))
        commit, changed = self._commit()
        about = {
            "version": tailrace.__version__, "commit": commit, "changed": changed, "python": python,
            "platform": platform, "extras": [*self.extras], "jars": [*self.groups], "pyspark": self.spark,
        }  # fmt: skip
        write_manifest(made, about)

    def _commit(self) -> tuple[str | None, bool | None]:
        """Return the checkout's commit, and whether it has uncommitted changes. Without git, both values are None."""
        git = ["git", "-C", str(self.root)]
        try:
            return _run([*git, "rev-parse", "HEAD"]).strip(), bool(_run([*git, "status", "--porcelain"]).strip())
        except AwsError:
            return None, None

    def _export_pins(self, extras: Iterable[str], *words: str) -> str:
        """Return the requirements of some extras, pinned to the versions in uv.lock. Tailrace itself is left out."""
        flags = [word for extra in extras for word in ("--extra", extra)]
        fixed = ("--frozen", "--no-default-groups", "--no-emit-project", "--no-header", "--no-annotate")
        return self._uv("export", *fixed, *flags, *words)

    def _uv(self, *words: str | Path) -> str:
        uv = self.root / "build" / "uv" / "bin" / "uv"
        if not uv.is_file():
            raise AwsError(f"{uv} is not there: run `make setup`")
        return _run([str(uv), "--quiet", "--no-python-downloads", *map(str, words)], cwd=self.root)


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


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises `AwsError` with the end of the error output if the command fails."""
    # Remove these variables, because the command must not use a virtual environment that is active in the calling
    # shell.
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except OSError as error:
        raise AwsError(f"{command[0]} cannot be run ({error.strerror})") from error
    if done.returncode:
        end = " ".join(done.stderr.split())[-600:]
        raise AwsError(f"`{' '.join(Path(command[0]).name if n == 0 else w for n, w in enumerate(command))}`: {end}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments and return its exit status: 0 on success, 1 on failure."""
    parser = argparse.ArgumentParser(
        "python -m tailrace.aws.bundle", description="Bundle this checkout, and upload it."
    )
    parser.add_argument("--out", type=Path, default=Path("build/bundle"), metavar="DIR", help="default: build/bundle")
    parser.add_argument("--to", metavar="s3://BUCKET/PREFIX", help="upload it: what has changed, and the manifest last")
    parser.add_argument("--extra", action="append", default=[], help="an extra of tailrace for the drivers, as observe")
    parser.add_argument("--kafka", action="store_true", help="with Spark's Kafka connector")
    parser.add_argument("--postgres", action="store_true", help="with PostgreSQL's driver, for a catalog there")
    parser.add_argument("--spark", action="store_true", help="with pyspark, for a cluster that does not bring it")
    parser.add_argument("--python", default=sys.executable, help="the interpreter; it must be in that place there, too")
    options = parser.parse_args(arguments)
    more = tuple(name for name in ("kafka", "postgres") if getattr(options, name))
    try:
        if options.to is not None:
            # Report an invalid address before the bundle is built.
            split_address(options.to)
        extras = tuple(dict.fromkeys(("aws", *more, *options.extra)))
        root = Path(__file__).resolve().parents[3]
        bundle = ClusterBundle(root, Settings().jars, options.python, extras, (*GROUPS, *more), options.spark)
        bundle.build(options.out, lambda text: print(f"bundle: {text}", flush=True))
        print(f"bundle: {options.out}")
        if options.to is not None:
            sent = upload_bundle(options.out, options.to, lambda text: print(f"upload: {text}", flush=True))
            print(f"upload: {len(sent)} files sent to {options.to}")
    except TailraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
