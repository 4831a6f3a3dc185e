"""`tailrace init`: make a project of one's own."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from tailrace.cli.commands.look.infer import FileFormat, sample_of
from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.infer.sample import Sample
    from tailrace.project.new_project import Source


def init(name: str, source: str | None = None, format: FileFormat | None = None, bootstrap: str | None = None) -> None:
    """Make a project: a definition inferred from records, tests, DAGs, a dbt project, settings and an image.

    The project is the folder NAME, and runs as it stands: its README names the commands. With --from, the definition is
    inferred from a file, a folder or a Kafka topic, as `tailrace infer` does. A file is copied into the project's
    folder `landing`; a folder stays where it is. Without --from, the project begins with the orders of a small shop.
    """
    from tailrace.infer.definition_text import definition_text
    from tailrace.infer.inference import infer
    from tailrace.lake.schema.dbt_sources import sources_text
    from tailrace.lake.schema.owned_tables import all_contracts
    from tailrace.plan.loader import load_all
    from tailrace.project.new_project import NewProject
    from tailrace.project.sample_orders import sample_orders

    folder = Path(name)
    with tempfile.TemporaryDirectory() as scratch:
        if source is None:
            orders = Path(scratch) / "orders.jsonl"
            orders.write_text("\n".join(sample_orders()) + "\n", encoding="utf-8")
            source = str(orders)
        place = Path(source)
        sample = sample_of(source, RECORDS, format, bootstrap)
        if place.is_file():
            sample = replace(sample, source=f"landing/{place.name}")
        found = infer(sample, folder.name.replace("-", "_"))
        definition = Path(scratch) / "definition.py"
        definition.write_text(definition_text(found), encoding="utf-8")
        [stage] = load_all([str(definition)])
        sources = sources_text([stage], all_contracts(stage))
        project = NewProject(
            folder.name, definition.read_text(encoding="utf-8"), stage.name, sources,
            _source(sample, place, folder, bootstrap),
        )  # fmt: skip
        project.write(folder, data=place if place.is_file() else None)
    lines = [f"made {folder}, from {len(sample.records):,} records. Its README names the next commands:", ""]
    commands = (f"    {one}" for one in (f"cd {folder}", *project.commands))
    Output().verbatim(Text("\n".join([*lines, *commands])))


RECORDS = 10_000
"""The maximum number of records from which the definition is inferred."""


def _source(sample: Sample, place: Path, folder: Path, bootstrap: str | None) -> Source:
    """Return where the project's stream reads the records from which its definition was inferred."""
    from tailrace.project.new_project import Source

    if not place.exists():
        return Source(None, topic=str(place), bootstrap=bootstrap or Settings().kafka_bootstrap)
    if place.is_file():
        return Source("landing", sample.format)
    inside = place.resolve().is_relative_to(folder.resolve())
    return Source(str(place.resolve().relative_to(folder.resolve()) if inside else place.resolve()), sample.format)
