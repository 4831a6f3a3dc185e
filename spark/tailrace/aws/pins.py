"""Resolve what a project and Tailrace need to pinned versions, with uv.

A resolve prefers the versions that the project is tested with: those of its `uv.lock`, or else the versions that are
installed beside Tailrace.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tailrace.aws.objects import AwsError
from tailrace.aws.wheel import NAME

_LEFT_OUT = "pyspark-client ; sys_platform == 'never'"
"""`pyspark-client` overwrites most of the files of pyspark, so nothing that asks for it gets it."""


@dataclass(frozen=True)
class Project:
    """A folder with definitions, the packages that it needs besides Tailrace, and uv, which resolves them.

    Raises `AwsError` if the folder has no definitions.
    """

    root: Path

    def __post_init__(self) -> None:
        if not (self.root / "pipelines").is_dir():
            raise AwsError(
                f"{self.root} has no folder pipelines/ with definitions: run the command in a project, such as "
                "`tailrace init` makes"
            )

    @property
    def needs(self) -> list[Requirement]:
        """The dependencies in `pyproject.toml`, except for Tailrace; none without such a file.

        Raises `AwsError` if they cannot be read.
        """
        file = self.root / "pyproject.toml"
        try:
            told = tomllib.loads(file.read_text()).get("project", {}) if file.is_file() else {}
            if told.get("name") == NAME:
                return []
            if "dependencies" in told.get("dynamic", ()):
                raise AwsError(
                    f"{file}: dependencies are dynamic; list them under [project], so that a bundle has them"
                )
            found = [Requirement(one) for one in told.get("dependencies", ())]
        except (tomllib.TOMLDecodeError, InvalidRequirement) as error:
            raise AwsError(f"{file}: {error}") from None
        return [one for one in found if canonicalize_name(one.name) != NAME]

    def uv(self, *words: str | Path) -> str:
        """Run uv in the project. Raises `AwsError` if uv is not there, or fails."""
        own = self.root / "build" / "uv" / "bin" / "uv"
        beside = Path(sys.executable).with_name("uv")
        program = next((str(one) for one in (own, beside) if one.is_file()), None) or shutil.which("uv")
        if program is None:
            raise AwsError("uv is not there, which resolves and installs what the bundle needs: `pip install uv`")
        return run_program([program, "--quiet", "--no-python-downloads", *map(str, words)], cwd=self.root)

    def tested(self) -> str:
        """Return the versions that the project is tested with, as requirements."""
        if (self.root / "uv.lock").is_file():
            plain = ("--no-hashes", "--no-header", "--no-annotate", "--no-emit-project", "--no-emit-local")
            return self.uv("export", "--frozen", "--all-extras", *plain)
        found = {canonicalize_name(one.name): one.version for one in distributions() if one.name}
        return "".join(f"{name}=={version}\n" for name, version in sorted(found.items()) if name != NAME)

    def pins(self, asked: Iterable[str], preferred: str, *words: str | Path, limits: str = "") -> str:
        """Return a requirements file with a version of each package that `asked` needs. Tailrace itself is left out.

        A version in `preferred` is taken if nothing rules it out, and `limits` are constraints. `words` are more
        arguments of uv. Raises `AwsError` if there are no such versions.
        """
        with tempfile.TemporaryDirectory(prefix="tailrace-pins-") as name:
            place = Path(name)
            texts = {
                "asked.in": "".join(f"{one}\n" for one in asked), "pins.txt": preferred, "limits.txt": limits,
                "overrides.txt": f"{_LEFT_OUT}\n",
            }  # fmt: skip
            for file, text in texts.items():
                (place / file).write_text(text)
            told = ("--override", place / "overrides.txt", "--constraint", place / "limits.txt")
            plain = ("--no-header", "--no-annotate", "--no-emit-package", NAME)
            out = ("--output-file", place / "pins.txt")
            # The versions hold for each platform, and for each Python that Tailrace runs on.
            self.uv(
                "pip",
                "compile",
                "--universal",
                "--python-version",
                "3.11",
                *told,
                *plain,
                *out,
                *words,
                place / "asked.in",
            )
            return (place / "pins.txt").read_text()


def prefer(first: str, second: str) -> str:
    """Return the versions of two lists of requirements. If a package is in both, the first list has precedence."""
    names = {_name(line) for line in first.splitlines()}
    return first.rstrip("\n") + "\n" + "".join(f"{line}\n" for line in second.splitlines() if _name(line) not in names)


def _name(line: str) -> str:
    return canonicalize_name(re.split(r"[^\w.-]", line, maxsplit=1)[0])


def run_program(command: Sequence[str], cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises `AwsError` with the end of the error output if the command fails."""
    # Remove these variables, because the command must not use a virtual environment that is active in the calling
    # shell.
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except OSError as error:
        raise AwsError(f"{command[0]} cannot be run ({error.strerror})") from error
    if done.returncode:
        end = " ".join(done.stderr.split())[-900:]
        raise AwsError(f"`{' '.join(Path(command[0]).name if n == 0 else w for n, w in enumerate(command))}`: {end}")
    return done.stdout
