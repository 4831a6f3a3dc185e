"""Two writers of one SQLite database, as Airflow's scheduler and its API are: neither is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: make setup WITH=airflow")

from tailrace.airflow.sqlite_turns import CONNECT_ARGS  # noqa: E402 - SQLAlchemy may not be there


def read_then_write(file: Path, arguments: dict[str, Any]) -> list[int]:
    """Write in a savepoint what was read in it, while somebody else writes; return the counts that are there then."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", connect_args=arguments | {"check_same_thread": False})
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("CREATE TABLE counts (n INTEGER)")

        def write() -> None:
            with engine.begin() as other:
                other.exec_driver_sql("INSERT INTO counts VALUES (1)")

        with engine.connect() as connection:
            with connection.begin_nested():
                (held,) = connection.exec_driver_sql("SELECT count(*) FROM counts").one()
                writer = threading.Thread(target=write)
                writer.start()
                # It is done by then, or waits for its turn.
                writer.join(0.3)
                connection.exec_driver_sql(f"INSERT INTO counts VALUES ({held + 10})")
            connection.commit()
            writer.join()
            return [n for (n,) in connection.exec_driver_sql("SELECT n FROM counts ORDER BY n")]
    finally:
        engine.dispose()


def test_who_reads_in_a_savepoint_before_it_writes_is_not_refused(tmp_path: Path) -> None:
    assert read_then_write(tmp_path / "turns.db", CONNECT_ARGS) == [1, 10]
    # Once this does not raise any more, nothing needs the module.
    with pytest.raises(sqlalchemy.exc.OperationalError, match="database is locked"):
        read_then_write(tmp_path / "as_it_is.db", {})
