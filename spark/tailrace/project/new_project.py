"""Make the files of a new project out of the texts in `template/`."""

from __future__ import annotations

import json
import keyword
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import tailrace
from tailrace.model.base.errors import RemedyError

TEMPLATE = Path(__file__).with_name("template")
"""The folder of the texts. A file's path has `NAME` where the project's files have the name of the module."""

_TAKEN = {"airflow", "dbt", "dags", "landing", "pipelines", "tailrace", "tests"}
_LONGEST = 40


class ProjectError(RemedyError, ValueError):
    """The project cannot be made in this folder, or under this name."""


@dataclass(frozen=True)
class Source:
    """Where the stream of a new project reads its records.

    `folder` is a folder of files in a format, relative to the project or absolute; None if the source is a Kafka topic.
    """

    folder: str | None = "landing"
    format: str = "json"
    topic: str | None = None
    bootstrap: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The options of `tailrace stream`, as words of a command."""
        if self.topic is not None:
            return "--kafka", self.topic, "--bootstrap", str(self.bootstrap)
        return "--from", str(self.folder), *(() if self.format == "json" else ("--format", self.format))

    @property
    def options(self) -> str:
        """The options of `tailrace stream`, as one types them."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class NewProject:
    """The files of a new project, whose name is `name`.

    `definition` is the text of a file with the log `log` and the pipeline `by_hour`, which counts the log's records, as
    `infer.definition_text` writes it. `pipeline` is the name of that pipeline, and so of its table. `sources` declares
    all tables for dbt, and `source` is where the stream reads. Raises `ProjectError` if the name is invalid.
    """

    name: str
    definition: str
    pipeline: str
    sources: str
    source: Source

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", self.name) or len(self.name) > _LONGEST:
            wanted = f"small letters, digits, - and _, at most {_LONGEST} characters"
            raise ProjectError(f"NAME {self.name!r}: expected {wanted}", "pass another name, such as web-shop")
        if self.module in sys.stdlib_module_names | _TAKEN or keyword.iskeyword(self.module):
            found = f"NAME {self.name!r}: Python or a folder of the project has this name"
            raise ProjectError(found, f"pass another name, such as {self.name}-events")

    @property
    def module(self) -> str:
        """The name of the Python module with the definition."""
        return self.name.replace("-", "_")

    @property
    def commands(self) -> tuple[str, ...]:
        """The first commands in the project."""
        return ("pip install '.[test]'", "pytest", "tailrace setup", "tailrace dev")

    @cached_property
    def files(self) -> Mapping[str, str]:
        """The texts of the project's files by their paths."""
        made = {f"pipelines/{self.module}.py": self.definition, "dbt/models/sources.yml": self.sources}
        return made | dict(self._rendered())

    def _rendered(self) -> Iterator[tuple[str, str]]:
        texts = Environment(
            loader=FileSystemLoader(TEMPLATE), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True,
            block_start_string="{=", block_end_string="=}", variable_start_string="<<", variable_end_string=">>",
        )  # fmt: skip
        texts.filters["quoted"] = json.dumps
        # Docker Compose replaces a variable after a single dollar sign.
        texts.filters["compose"] = lambda text: json.dumps(text).replace("$", "$$")
        facts = {
            "name": self.name, "module": self.module, "pipeline": self.pipeline, "source": self.source,
            "version": tailrace.__version__, "commands": self.commands,
        }  # fmt: skip
        for file in sorted(one for one in TEMPLATE.rglob("*") if one.is_file()):
            place = file.relative_to(TEMPLATE).as_posix()
            path = place.replace("NAME", self.module).removesuffix(".txt")
            yield path, texts.get_template(place).render(facts)

    def write(self, folder: Path, data: Path | None = None) -> None:
        """Write the files, and a copy of `data` in the folder where records land.

        The folder appears whole, or not at all. Raises `ProjectError` if it is there already and has files.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ProjectError(f"{folder} is there already, and is not empty", "pass another name, or move it away")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".init-") as scratch:
            made = Path(scratch) / "project"
            for place, text in self.files.items():
                file = made / place
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            landing = made / "landing"
            landing.mkdir(exist_ok=True)
            if data is not None:
                shutil.copyfile(data, landing / data.name)
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
