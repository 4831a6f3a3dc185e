"""The Airflow assets of the tables of answers: tasks that change a table emit an event, which may schedule DAGs."""

from __future__ import annotations

from airflow.sdk import Asset


def asset_of(name: str) -> Asset:
    """Return the asset of a pipeline's answers."""
    return Asset(name=name, uri=f"tailrace://pipelines/{name}")
