"""Sensors that wait for a watermark. They are deferrable: while they wait, they occupy no worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from tailrace.airflow.connection import load_settings
from tailrace.airflow.tasks import explain, failure, is_worth_retrying, reason_of
from tailrace.airflow.triggers import Wait, WatermarkTrigger
from tailrace.model.base.time import duration, instant
from tailrace.runners.jobs import RunnerError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tailrace.settings import Settings

__all__ = ["FreshnessSensor", "WatermarkSensor"]


class WaitSensor(BaseSensorOperator):
    """Waits for the watermark of the definition or log that is named `of`.

    `conn_id` is the id of the connection that names the lake; without it, the settings of the environment name the
    lake. The triggerer looks every `poke_interval`, and the task fails after `timeout`. With `deferrable=False`, the
    task looks itself, as Airflow's `mode` says.
    """

    template_fields: Sequence[str] = ("of",)
    ui_color = "#dcefee"

    def __init__(self, *, of: str, conn_id: str | None = None, deferrable: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self.of, self.conn_id, self.deferrable = of, conn_id, deferrable

    def make_wait(self) -> Wait:
        """Return what the sensor waits for. Raises `RunnerError` if the sensor's values do not hold."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            wait = self.make_wait()
            trigger = WatermarkTrigger(
                of=wait.of, until=wait.until, within=wait.within, conn_id=self.conn_id, every=self.poke_interval
            )
            self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout))
        return None

    def poke(self, context: Context) -> bool:
        """Look once, and log what was found."""
        settings: Settings | None = None
        try:
            settings = load_settings(self.conn_id)
            over, said = self.make_wait().look(settings)
        except Exception as error:
            explained = explain(error, settings)
            raise failure(reason_of(explained), again=is_worth_retrying(explained)) from None
        self.log.info("%s", said)
        return over

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Take the trigger's event, and fail if the trigger could not look."""
        if "failed" in event:
            raise failure(str(event["failed"]), again=bool(event.get("again", True)))
        self.log.info("%s", event["said"])


class WatermarkSensor(WaitSensor):
    """Waits until the watermark of a definition or log has reached an instant.

    `of` is the name of the definition or log, as in `tailrace status`. `until` is a `datetime` with a time zone, or a
    text in ISO 8601; it is a template, for example `"{{ data_interval_end }}"`. A definition's watermark counts only
    once the table of answers has all answers up to this watermark.
    """

    template_fields: Sequence[str] = ("of", "until")

    def __init__(self, *, until: datetime | str, **more: Any) -> None:
        super().__init__(**more)
        self.until = until

    def make_wait(self) -> Wait:
        try:
            until = datetime.fromisoformat(str(self.until)) if not isinstance(self.until, datetime) else self.until
            # A plain `datetime`, because Airflow's own differs in its arithmetic.
            return Wait(self.of, until=instant(datetime.fromisoformat(until.isoformat())))
        except ValueError as error:
            raise RunnerError(f"until = {self.until!r} is no instant ({error})", again=False) from None


class FreshnessSensor(WaitSensor):
    """Waits until the answers of a definition, or the records of a log, are complete up to `within` before now.

    `of` is the name of the definition or log, as in `tailrace status`. The task fails if the watermark is more than a
    day ahead of the clock, because a single record with a wrong event time can move it there.
    """

    def __init__(self, *, within: timedelta, **more: Any) -> None:
        super().__init__(**more)
        if within < timedelta(0):
            raise ValueError(f"within = {within!r}: expected a duration, for example timedelta(minutes=15)")
        self.within = within

    def make_wait(self) -> Wait:
        return Wait(self.of, within=duration(self.within))
