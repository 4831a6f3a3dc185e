"""How long a DAG processor takes over so many pipelines: `python benchmarks/parsing.py --pipelines 50`.

Each pipeline is a definition of its own in a file of its own, with a DAG file of its own. Airflow itself is imported
before, as it is in the processes that a DAG processor forks. What is told is CPU time, and that of making the DAGs into
what the database keeps apart.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

DAG_FILE = """
from tailrace.airflow import backfill_dag

dag = backfill_dag({definition!r})
"""


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/parsing.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pipelines", type=int, default=50, help="how many (50)")
    asked = parser.parse_args(given)
    import airflow.sdk
    from airflow.serialization.serialized_objects import DagSerialization

    began = time.process_time()
    import tailrace.airflow  # noqa: F401

    imported = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        files = [_written(Path(folder), number) for number in range(asked.pipelines)]
        began, dags = time.process_time(), []
        for file in files:
            scope: dict[str, object] = {"__file__": str(file), "__name__": file.stem}
            exec(compile(file.read_text(), str(file), "exec"), scope)
            dags.append(scope["dag"])
        parsed = time.process_time() - began
        began = time.process_time()
        for dag in dags:
            assert isinstance(dag, airflow.sdk.DAG)
            DagSerialization.to_dict(dag)
        serialized = time.process_time() - began
    heavy = sorted({"pyspark", "pyarrow", "pyiceberg", "pandas"} & set(sys.modules))
    print(f"{asked.pipelines} pipelines: parsed in {parsed:.2f} s, made into JSON in {serialized:.2f} s; ", end="")
    print(f"importing the factory {imported:.2f} s; imported of what is heavy: {', '.join(heavy) or 'nothing'}")
    return 0


def _written(folder: Path, number: int) -> Path:
    """A definition and its DAG file; gives the latter."""
    text = (ROOT / "pipelines" / "flights.py").read_text()
    text = re.sub(r'name="(flights|hourly_departures)"', rf'name="\g<1>_{number}"', text)
    definition = folder / f"pipeline_{number}.py"
    definition.write_text(text)
    file = folder / f"dag_{number}.py"
    file.write_text(DAG_FILE.format(definition=str(definition)))
    return file


if __name__ == "__main__":
    sys.exit(main())
