"""`tailrace serve` listens where it says, tells open pages of each epoch, and ends by Ctrl-C; it starts no JVM."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.runners.exit_status import ExitStatus
from tailrace.settings import Settings
from tests.support.lakes import small_lake
from tests.support.lakes.small_lake import HOURLY, append, pane
from tests.support.processes.serve_process import serving

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")


@pytest.fixture
def definition(tmp_path: Path) -> str:
    (tmp_path / "rides.py").write_text(small_lake.DEFINITION)
    return str(tmp_path / "rides.py")


def test_a_server_shows_the_lake_tells_of_an_epoch_and_ends_by_ctrl_c(settings: Settings, definition: str) -> None:
    lake = small_lake.make(settings)
    with serving(settings, definition) as server:
        with urllib.request.urlopen(server.address) as answer:
            assert HOURLY.name in answer.read().decode()
            assert answer.headers["server"] is None
        with urllib.request.urlopen(f"{server.address}events", timeout=30) as news:
            first = next(line for line in news if line.startswith(b"data: "))
            said = lake.head(f"{HOURLY.name}__ledger").properties
            append(lake, f"{HOURLY.name}__ledger", [pane("Rome", 11, 3, 0, (1, 1.0), "early")], {**said, "epoch": "3"})
            assert next(line for line in news if line.startswith(b"data: ")) != first
        server.process.send_signal(signal.SIGINT)
        out, err = server.process.communicate(timeout=30)
    assert (server.process.returncode, out, err) == (0, "", "")


def test_a_token_is_asked_for_and_is_written_nowhere(settings: Settings, definition: str) -> None:
    small_lake.make(settings)
    token = "a-token-of-some-length"
    with serving(settings, definition, TAILRACE_SERVE_TOKEN=token) as server:
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(server.address)
        refused.value.close()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(f"{server.address}?token={token}") as answer:
            assert answer.url == server.address
        server.process.send_signal(signal.SIGINT)
        out, err = server.process.communicate(timeout=30)
    assert token not in server.said + out + err


@pytest.mark.parametrize(
    ("options", "says", "status"),
    [
        (["--host", "0.0.0.0"], "TAILRACE_SERVE_TOKEN", ExitStatus.USAGE),
        (["--token", "short"], "serve_token", ExitStatus.USAGE),
        (["--airflow", "javascript:alert(1)"], "--airflow", ExitStatus.USAGE),
        (["--host", "192.0.2.77", "--token", "a-token-of-some-length"], "--host", ExitStatus.FAILED),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line_with_what_mends_it(
    definition: str, options: list[str], says: str, status: ExitStatus
) -> None:
    result = CliRunner().invoke(app, ["serve", definition, "--port", "0", *options])
    assert result.exit_code == status, result.output
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert "short" not in result.stderr
