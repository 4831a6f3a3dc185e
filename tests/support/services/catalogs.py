"""Lakes of each kind that can run here: a namespace of a test's own, in servers that tests share."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType

import pytest
from pydantic import SecretStr

from tailrace.settings import PREFIX, Settings
from tests.support.services.aws import aws
from tests.support.services.postgres import POSTGRES, postgres
from tests.support.services.rest_catalog import Gate, rest_catalog
from tests.support.services.s3proxy import s3proxy

LAKES = ("sqlite", "postgres", "rest", "glue", "s3")
"""SQLite, PostgreSQL and a REST catalog with tables in a folder, Glue and SQLite with tables in an S3 each."""


LOCAL = ("sqlite", "postgres")
"""The lakes that need neither a JVM nor a server of AWS, whose requests take their time."""


class Servers:
    """What the lakes need, each started for who asks for it first, all stopped in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._started = folder, ExitStack()

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def lake(self, kind: str, settings: Settings) -> tuple[Settings, dict[str, str]]:
        """Settings of an empty lake, and the environment with it; the test is skipped where it cannot run here."""
        name = f"of_{uuid.uuid4().hex[:8]}"
        told, env = {"namespace": name}, dict[str, str]()
        match kind:
            case "postgres":
                told["catalog_uri"] = self._postgres
            case "rest":
                told["catalog_uri"] = self.rest.uri
                env = {f"{PREFIX}CATALOG_SECRET": self.rest.token}
            case "glue":
                told |= {"catalog_uri": "glue://", "warehouse": f"s3://lake/{name}"}
                env = self._aws
            case "s3":
                told |= {"catalog_uri": f"sqlite:///{settings.warehouse}.db", "warehouse": f"s3://lake/{name}"}
                env = self._s3
        if kind == "rest":
            return settings.model_copy(update={**told, "catalog_secret": SecretStr(self.rest.token)}), env
        return settings.model_copy(update=told), env

    @cached_property
    def _postgres(self) -> str:
        if POSTGRES is None:
            pytest.skip("there is no PostgreSQL server on this machine")
        return self._started.enter_context(postgres()).replace("+psycopg2", "")

    @cached_property
    def rest(self) -> Gate:
        """The REST catalog, started for who asks first."""
        return self._started.enter_context(rest_catalog(self.folder / "rest"))

    @cached_property
    def _aws(self) -> dict[str, str]:
        cloud = self._started.enter_context(aws())
        cloud.client("s3").create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": cloud.region})
        return cloud.environment

    @cached_property
    def _s3(self) -> dict[str, str]:
        return self._started.enter_context(s3proxy(self.folder))
