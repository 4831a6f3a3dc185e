"""Name the Airflow assets of answers: a task that changes a table emits an event, which may schedule DAGs."""

from __future__ import annotations

from airflow.sdk import Asset


def asset_of(name: str) -> Asset:
    """Return the asset of a pipeline's answers."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")
