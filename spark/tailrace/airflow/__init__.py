"""Create Airflow DAGs from definitions. The files in `dags/` only call the factory functions of this package.

Parsing a DAG loads its definition, which needs only the standard library; the engine, the tables and Spark are imported
only when a task runs.
"""

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

__all__ = [
    "DagArgs",
    "DagArgsError",
    "SourceOptions",
    "StreamOptions",
    "TaskArgs",
    "backfill_dag",
    "dbt_dag",
    "maintenance_dag",
    "repair_dag",
    "stream_dag",
]
