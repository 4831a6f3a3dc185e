"""`tailrace infer`: write a definition for the records of a file, a folder or a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import quantity
from tailrace.cli.terminal.usage import UsageError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.infer.sample import Sample

FileFormat: TypeAlias = Literal["json", "csv", "parquet", "avro"]


def infer(
    source: str,
    records: int = 10_000,
    format: FileFormat | None = None,
    name: str | None = None,
    bootstrap: str | None = None,
    out: Path | None = None,
) -> None:
    """Write a definition for the records of a file, a folder or a Kafka topic, as far as a sample shows it.

    The definition is a Python file with a Log and a Pipeline that counts records by hour. It runs as it stands:
    comments give the reasons for each choice, and name what the sample leaves open. SOURCE is a file of JSON, CSV,
    Parquet or Avro, a folder of such files, or, if there is no such file, a topic.
    """
    from tailrace.infer.definition_text import definition_text
    from tailrace.infer.inference import infer as inferred

    output = Output()
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: the file is there: pass another name, or move it away")
    sample = sample_of(source, records, format, bootstrap)
    text = definition_text(inferred(sample, name))
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    output.verbatim(f"wrote {out}, from {quantity(len(sample.records), 'record')}")


def sample_of(source: str, records: int, format: FileFormat | None, bootstrap: str | None) -> Sample:
    """Read a sample of a file, a folder or, if there is no such file, a Kafka topic."""
    from tailrace.infer.samples import read_files

    place = Path(source)
    if place.exists():
        return read_files(place, records, format)
    from tailrace.infer.topics import read_topic
    from tailrace.ingest.kafka_access import KafkaAccess

    settings = Settings()
    brokers = bootstrap or settings.kafka_bootstrap
    if brokers is None or "/" in source:
        raise UsageError(
            f"{source}: no such file or folder: for a Kafka topic, pass --bootstrap HOST:PORT, or set "
            "TAILRACE_KAFKA_BOOTSTRAP"
        )
    return read_topic(source, brokers, KafkaAccess.of(settings), records, settings)
