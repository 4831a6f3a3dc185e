"""The trigger of the sensors: it looks at a watermark again and again, and occupies no worker while it waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tailrace.airflow.connection import secret_texts, settings_of
from tailrace.model.base.clock import ahead
from tailrace.model.base.time import BEGINNING, length, text
from tailrace.runners.jobs import RunnerError
from tailrace.settings import Settings

_MINUTE = 60_000_000


@dataclass(frozen=True)
class Wait:
    """What a sensor waits for: that the watermark of a definition or log is at an instant, or close to the wall clock.

    `of` is the name of the definition or log. Either `until` is an instant, or `within` a duration; both are in
    microseconds.
    """

    of: str
    until: int | None = None
    within: int | None = None

    def look(self, settings: Settings) -> tuple[bool, str]:
        """Look at the lake; return whether the wait is over, and what was found in one line.

        Raises an error if the lake cannot be read, or if the watermark is in the future by mistake.
        """
        from tailrace.lake.catalog.lake import Lake
        from tailrace.lake.read.current_watermark import current_watermark

        lake = Lake(settings, looks=True)
        if not lake.exists:
            return False, f"there is no lake at {settings.warehouse} yet"
        with closing(lake.catalog):
            found = current_watermark(lake, self.of)
        return self.judge(found, time.time_ns() // 1_000)

    def judge(self, watermark: int | None, at: int) -> tuple[bool, str]:
        """Compare a watermark with what is waited for, at the wall clock's time `at`."""
        if watermark is None or watermark == BEGINNING:
            return False, f"{self.of} has no {'tables' if watermark is None else 'watermark'} yet"
        if self.until is not None:
            wanted, by = self.until, text(self.until)
        else:
            assert self.within is not None
            wanted, by = at - self.within, f"{length(self.within)} before now"
            if over := ahead(watermark, at):
                by = length(over // _MINUTE * _MINUTE)
                raise RunnerError(
                    f"the watermark of {self.of} is at {text(watermark)}, {by} ahead of the clock: it says nothing of "
                    "how fresh the answers are",
                    again=False,
                )
        reached = watermark >= wanted
        return reached, f"the watermark of {self.of} is at {text(watermark)}{'' if reached else f', not yet at {by}'}"


class WatermarkTrigger(BaseTrigger):
    """Fires once a wait is over, or once the lake cannot be read.

    The trigger has the id of the connection and not its settings, so that no secret is in Airflow's database.
    """

    def __init__(
        self,
        *,
        of: str,
        until: int | None = None,
        within: int | None = None,
        conn_id: str | None = None,
        every: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wait = Wait(of, until, within)
        self.conn_id, self.every = conn_id, every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{WatermarkTrigger.__module__}.{WatermarkTrigger.__qualname__}"
        return path, asdict(self.wait) | {"conn_id": self.conn_id, "every": self.every}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the wait is over. The event is `{"said": TEXT}`, or `{"failed": TEXT, "again": BOOL}`."""
        from tailrace.airflow.tasks import explain, is_worth_retrying, reason_of

        last = ""
        while True:
            settings: Settings | None = None
            try:
                settings = await self._load_settings()
                # Reading the lake blocks, and the other triggers of this process must go on meanwhile.
                over, said = await asyncio.to_thread(self._look, settings)
            except Exception as error:
                explained = await asyncio.to_thread(explain, error, settings)
                yield _event(failed=reason_of(explained), again=is_worth_retrying(explained))
                return
            if over:
                yield _event(said=said)
                return
            if said != last:
                self.log.info("%s", said)
                last = said
            await asyncio.sleep(self.every)

    def _look(self, settings: Settings | None) -> tuple[bool, str]:
        return self.wait.look(Settings() if settings is None else settings)

    async def _load_settings(self) -> Settings | None:
        """Return the settings of the connection, or None if the environment's hold."""
        if self.conn_id is None:
            return None
        from airflow.sdk import BaseHook, log

        settings = settings_of(await BaseHook.aget_connection(self.conn_id))
        # Before Airflow 3.2, there is only the function for tasks, which works here as well.
        mask = getattr(log, "amask_secret", None)
        for secret in secret_texts(settings):
            if mask is None:
                log.mask_secret(secret)
            else:
                await mask(secret)
        return settings


def _event(**told: Any) -> TriggerEvent:
    return TriggerEvent(told)  # type: ignore[no-untyped-call]
