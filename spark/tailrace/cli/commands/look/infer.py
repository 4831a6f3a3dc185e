"""`tailrace infer`: write a definition for the records of a file, a folder or a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import quantity
from tailrace.cli.terminal.usage import UsageError
from tailrace.settings import Settings


def infer(
    source: str,
    records: int = 10_000,
    format: Literal["json", "csv", "parquet", "avro"] | None = None,
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
    from tailrace.infer.samples import read_files

    output = Output()
    if out is not None and out.exists():
        raise UsageError(f"--out {out}: the file is there: pass another name, or move it away")
    place = Path(source)
    if place.exists():
        sample = read_files(place, records, format)
    else:
        from tailrace.infer.topics import read_topic
        from tailrace.ingest.kafka_access import KafkaAccess

        settings = Settings()
        brokers = bootstrap or settings.kafka_bootstrap
        if brokers is None or "/" in source:
            raise UsageError(
                f"{source}: no such file or folder: for a Kafka topic, pass --bootstrap HOST:PORT, or set "
                "TAILRACE_KAFKA_BOOTSTRAP"
            )
        sample = read_topic(source, brokers, KafkaAccess.of(settings), records)
    text = definition_text(inferred(sample, name))
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    output.verbatim(f"wrote {out}, from {quantity(len(sample.records), 'record')}")
