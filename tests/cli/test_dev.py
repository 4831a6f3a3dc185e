"""`tailrace dev` streams and shows a definition, and begins anew when it changes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tailrace.runners.processes import is_running, wait_for
from tailrace.settings import PREFIX, Settings

TAILRACE = Path(sys.executable).with_name("tailrace")
PATIENCE = 120.0


@pytest.mark.system
def test_a_definition_is_streamed_and_shown_and_a_change_begins_anew(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    env |= {"COLUMNS": "200", f"{PREFIX}JARS": str(Settings().jars)}
    subprocess.run([TAILRACE, "init", "web-shop"], cwd=tmp_path, env=env, check=True, capture_output=True)
    project = tmp_path / "web-shop"
    file, said = project / "pipelines" / "web_shop.py", tmp_path / "said"

    def shown(wanted: str) -> Callable[[], bool | None]:
        def page() -> bool | None:
            try:
                (address,) = {*re.findall(r"http://127.0.0.1:\d+/", said.read_text())}
                with urlopen(address, timeout=10) as answer:
                    text = re.sub(r"<[^>]*>|\s+", " ", answer.read().decode())
            except (ValueError, URLError, ConnectionError, TimeoutError):
                return None
            return re.search(wanted, text) is not None or None

        return page

    with said.open("wb") as out, socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["dev", "--port", str(taken.getsockname()[1])]
        process = subprocess.Popen([TAILRACE, *words], cwd=project, env=env, stdout=out, stderr=out)
        try:
            assert wait_for(shown("web_shop_by_hour.*400 records"), PATIENCE, 0.5), said.read_text()
            children = _children(process.pid)
            assert len(children) == 2

            good = file.read_text()
            file.write_text(good.replace("hours(1)", "hours(0)"))
            assert wait_for(lambda: "goes on" in said.read_text() or None, PATIENCE, 0.5)
            assert "pipelines/web_shop.py" in said.read_text()
            assert shown("web_shop_by_hour.*400 records")()
            assert _children(process.pid) == children

            file.write_text(good.replace("web_shop_by_hour", "web_shop_hourly"))
            assert wait_for(shown("web_shop_hourly.*400 records"), PATIENCE, 0.5), said.read_text()
            assert [one.name for one in (project / "build" / "dev").glob("lake-*")] == ["lake-2"]

            again = subprocess.run(
                [TAILRACE, *words], cwd=project / "tests", env=env, capture_output=True, text=True, check=False
            )
            assert "another `tailrace dev` runs" in again.stderr

            children = _children(process.pid)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
            assert not [one for one in children if is_running(one)]
            assert not list((project / "build" / "dev").glob("lake-*"))
            assert not (project / "build" / "lake").exists()
        finally:
            if process.poll() is None:
                process.kill()


def _children(pid: int) -> list[int]:
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.parametrize(("told", "said"), [(None, "set TAILRACE_DEV"), ("--from x", "expected a definition")])
def test_without_definitions_the_error_names_the_setting(told: str | None, said: str, tmp_path: Path) -> None:
    env = os.environ | ({} if told is None else {f"{PREFIX}DEV": told})
    done = subprocess.run([TAILRACE, "dev"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_without_a_source_the_error_names_the_option(tmp_path: Path) -> None:
    file = tmp_path / "web.py"
    file.write_text(
        "from tailrace import Count, Fixed, Log, Pipeline, hours\n"
        'log = Log(name="web", columns={"at": "timestamp"}, event_time="at")\n'
        'p = Pipeline(name="p", log=log, what={"n": Count()}, where=Fixed(hours(1)))\n'
    )
    done = subprocess.run([TAILRACE, "dev", file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--from landing" in done.stderr
