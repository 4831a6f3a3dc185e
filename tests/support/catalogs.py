"""Lakes in each kind of catalog that can run here: a namespace of a test's own, in a server that tests share."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType

import pytest

from support.postgres import POSTGRES, postgres
from tailrace.settings import Settings

CATALOGS = ("sqlite", "postgres")


class Servers:
    """The servers of the catalogs, each started for who asks for it first, all stopped in the end."""

    def __init__(self) -> None:
        self._started = ExitStack()

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def settings(self, kind: str, settings: Settings) -> Settings:
        """Those of an empty lake in such a catalog; the test is skipped where it cannot run here."""
        told = {"namespace": f"of_{uuid.uuid4().hex[:8]}"}
        if kind == "postgres":
            told["catalog_uri"] = self._postgres
        return settings.model_copy(update=told)

    @cached_property
    def _postgres(self) -> str:
        if POSTGRES is None:
            pytest.skip("there is no PostgreSQL server on this machine")
        return self._started.enter_context(postgres()).replace("+psycopg2", "")
