"""What every test may ask for: settings of a lake of its own, and a Spark session on it."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase

from tailrace.settings import PREFIX, Settings
from tests.support.depth import DEPTH
from tests.support.faults.killing import JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A shared machine's pauses are no finding. CI tries the same examples each time; a developer's run tries new ones.
hypothesis.settings.register_profile(
    "tailrace", deadline=None, database=DirectoryBasedExampleDatabase(Path("build/hypothesis"))
)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, JVM)
IN_CI = bool(os.environ.get("CI"))
hypothesis.settings.load_profile("ci" if IN_CI else "tailrace")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for a Spark session, and leave out what is tried only where it is asked for more."""
    # What takes minutes begins first: begun last, it is what the others wait for.
    items.sort(key=lambda item: not (item.get_closest_marker("system") and item.get_closest_marker("slow")))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    if DEPTH < 2:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("deep")])
        items[:] = [item for item in items if not item.get_closest_marker("deep")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test in CI, because a claim that is never tested holds nothing."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI skips no test: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a skipped module in CI."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, and CI skips no test: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _only_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the developer's own shell do not reach a test; where Java and the jars are, does."""
    for name in os.environ:
        if name.startswith((PREFIX, "OPENLINEAGE_")) and name not in {f"{PREFIX}JARS", f"{PREFIX}JAVA_HOME"}:
            monkeypatch.delenv(name)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with an empty lake of the test's own, whose tables are as their definitions say."""
    return Settings(
        warehouse=tmp_path / "lake", contracts=tmp_path / "contracts", driver_memory="1200m", shuffle_partitions=2
    )


@pytest.fixture
def plain(spark: SparkSession) -> SparkSession:
    """The session without generated code: a definition is run for a few tiny epochs, which compiling would dwarf."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    return spark


@pytest.fixture
def spark(settings: Settings) -> SparkSession:
    """A Spark session on the lake of `settings`: the first of a process starts the JVM, 5 seconds, others take none.

    Tests share the JVM, but no catalog, SQL setting or view.
    """
    from tests.support.engines.sessions import session

    return session(settings)
