"""Create Airflow DAGs from definitions. The files in `dags/` only call the factory functions of this package.

Parsing a DAG loads its definition, which needs only the standard library; the engine, the tables and Spark are imported
only when a task runs. Each factory takes `conn_id`, the id of the Airflow connection that names the lake; without it,
the settings of the environment name the lake.
"""

from typing import TYPE_CHECKING

from tailrace.model.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from tailrace.airflow.dag_args import DagArgs, DagArgsError, TaskArgs
    from tailrace.airflow.factory import (
        SourceOptions,
        StreamOptions,
        backfill_dag,
        dbt_dag,
        maintenance_dag,
        repair_dag,
        stream_dag,
    )
    from tailrace.airflow.tasks import asset_of, days_asset_of
else:
    # Airflow imports this package for the provider while it reads its configuration, and cannot be imported itself yet.
    __getattr__ = lazy_names(
        __name__,
        {
            "DagArgs": "tailrace.airflow.dag_args",
            "DagArgsError": "tailrace.airflow.dag_args",
            "SourceOptions": "tailrace.airflow.factory",
            "StreamOptions": "tailrace.airflow.factory",
            "TaskArgs": "tailrace.airflow.dag_args",
            "asset_of": "tailrace.airflow.tasks",
            "backfill_dag": "tailrace.airflow.factory",
            "days_asset_of": "tailrace.airflow.tasks",
            "dbt_dag": "tailrace.airflow.factory",
            "maintenance_dag": "tailrace.airflow.factory",
            "repair_dag": "tailrace.airflow.factory",
            "stream_dag": "tailrace.airflow.factory",
        },
    )

__all__ = [
    "DagArgs",
    "DagArgsError",
    "SourceOptions",
    "StreamOptions",
    "TaskArgs",
    "asset_of",
    "backfill_dag",
    "days_asset_of",
    "dbt_dag",
    "maintenance_dag",
    "repair_dag",
    "stream_dag",
]
