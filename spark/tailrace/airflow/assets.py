"""What stands for a table of answers in Airflow: whoever changes one tells it, and DAGs may be scheduled by it."""

from __future__ import annotations

from airflow.sdk import Asset


def asset_of(name: str) -> Asset:
    """The asset of a pipeline's table."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")
