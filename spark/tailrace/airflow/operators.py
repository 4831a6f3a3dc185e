"""The operators for DAGs of your own. The factories in `tailrace.airflow` make whole DAGs of them.

Every operator takes `conn_id`, the id of the connection that names the lake, and those that run jobs take `runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.airflow.backfill_task import RangesOperator
from tailrace.airflow.dbt_task import DbtOperator
from tailrace.airflow.form import BackfillRequest
from tailrace.airflow.maintenance_task import MaintainOperator
from tailrace.airflow.ranges import Extent, Interval, choose_range, cut_range
from tailrace.airflow.stream_tasks import StreamOperator
from tailrace.airflow.tasks import absolute_place
from tailrace.plan.loader import load_ranged
from tailrace.runners.jobs import Runner, RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["BackfillRangeOperator", "DbtOperator", "MaintainOperator", "StreamOperator"]


class BackfillRangeOperator(RangesOperator):
    """Backfills the range from `first` to `last` of a definition, `FILE` or `FILE:NAME`.

    `first`, `last` and `reason` are templates; `first` and `last` are instants in ISO 8601, for example
    `"{{ data_interval_start }}"`. Without `last`, the range includes everything from `first` on. `parallelism` is the
    number of runs into which the range is divided; they run at the same time.
    """

    template_fields: Sequence[str] = ("first", "last", "reason")

    def __init__(
        self,
        *,
        definition: str | Path,
        first: str,
        last: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        parallelism: int = 1,
        runner: Callable[[], Runner] | None = None,
        **more: Any,
    ) -> None:
        place = absolute_place(definition)
        super().__init__(definition=place, pipeline=load_ranged(place), runner=runner, **more)
        self.first, self.last, self.reason = first, last, reason
        # `dry_run` is the name of a method of Airflow's.
        self.compares_only, self.parallelism = dry_run, parallelism

    def find_ranges(self, context: Context, extent: Extent) -> tuple[BackfillRequest, list[Interval]]:
        asked = {"from": self.first, "to": self.last, "reason": self.reason}
        request = BackfillRequest.of(asked | {"dry_run": self.compares_only, "parallelism": self.parallelism})
        if request.first is None:
            raise RunnerError("first is empty: a backfill starts at an instant", again=False)
        return request, cut_range(choose_range(request, None, extent, _unbounded), request.parallelism, extent)


def _unbounded(end: int) -> Interval:
    raise RunnerError("first is empty: a backfill starts at an instant", again=False)
