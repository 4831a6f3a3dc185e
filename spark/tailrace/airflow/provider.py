"""Describe Tailrace to Airflow as a provider, which Airflow finds through the entry point of the installed package."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider: its connection type, and the modules of its operators and sensors.

    Airflow asks for it while it reads its configuration, when nothing of Airflow can be imported yet.
    """
    import tailrace
    from tailrace.airflow.connection import TYPE
    from tailrace.airflow.connection_form import BEHAVIOUR, FIELDS, TITLE

    string = {"type": ["string", "null"]}
    fields = {name: {"label": label, "description": said, "schema": string} for name, (label, said) in FIELDS.items()}
    return {
        "package-name": "tailrace",
        "name": "Tailrace",
        "description": "Streams, backfills and repairs of windowed pipelines on Iceberg tables.",
        "versions": [tailrace.__version__],
        "operators": [{"integration-name": "Tailrace", "python-modules": ["tailrace.airflow.operators"]}],
        "sensors": [{"integration-name": "Tailrace", "python-modules": ["tailrace.airflow.sensors"]}],
        "hooks": [{"integration-name": "Tailrace", "python-modules": ["tailrace.airflow.hook"]}],
        "triggers": [{"integration-name": "Tailrace", "python-modules": ["tailrace.airflow.triggers"]}],
        "connection-types": [
            {
                "connection-type": TYPE,
                "hook-class-name": "tailrace.airflow.hook.TailraceHook",
                "hook-name": TITLE,
                "conn-fields": fields,
                "ui-field-behaviour": {name.replace("_", "-"): value for name, value in BEHAVIOUR.items()},
            }
        ],
    }
