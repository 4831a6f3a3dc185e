"""Measures streams on one core, on two, and on two workers of a cluster, into `measured.json` beside this module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, JobError, environment
from benchmarks.planning.shapes import CLUSTER, ONE_CORE, SHAPES
from tailrace.settings import Settings
from tests.support.services.cluster import Cluster, cluster

FOLDER = ROOT / "build" / "planning"
MEASURED = Path(__file__).with_name("measured.json")
TIMES = 2
"""How often each shape is streamed; that with the fewer CPU seconds is kept."""

_JVM = "-XX:-UseDynamicNumberOfCompilerThreads"
"""Threads of the compiler stay, so that what they have taken can be read at the end."""


def measured(say: Callable[[str], object], times: int = TIMES) -> dict[str, Any]:
    """Stream all shapes, and write what was found."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    names = [shape.name for shape in SHAPES]
    rows = _process("two", "local[2]", "local", 2, names * times, say, growth=True)
    rows += _process("one", "local[1]", "local", 1, [*ONE_CORE] * times, say)
    rows += _on_cluster([shape.name for shape in CLUSTER] * times, say)
    found = {
        "measured": date.today().isoformat(),
        "times": times,
        **json.loads((FOLDER / "two" / "growth.json").read_text()),
        "streams": lower(rows),
    }
    MEASURED.write_text(json.dumps(rounded(found), indent=1) + "\n")
    return found


def lower(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the rows of a shape on the same cores, that with the fewest CPU seconds."""
    kept: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in rows:
        place = (row["kind"], row["cores"], row["shape"]["name"])
        if place not in kept or cpu(row) < cpu(kept[place]):
            kept[place] = row
    return list(kept.values())


def cpu(row: dict[str, Any]) -> float:
    """CPU seconds of an epoch, without the JVM's compiler."""
    return float(row["driver_jvm_cpu"] + row["driver_python_cpu"] + row["executor_cpu"])


def rounded(value: Any) -> Any:
    """Numbers to five digits, so that the file can be read."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _on_cluster(shapes: Sequence[str], say: Callable[[str], object]) -> list[dict[str, Any]]:
    with cluster(FOLDER / "cluster", Settings()) as place:
        return _process("on_cluster", place.address, "cluster", 2, shapes, say, place=place)


def _process(
    name: str, master: str, kind: str, cores: int, shapes: Sequence[str], say: Callable[[str], object], *,
    growth: bool = False, place: Cluster | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    home = FOLDER / name
    home.mkdir()
    options = {} if place is None else {"spark.executor.memory": "900m", "spark.cores.max": str(cores)}
    if place is not None:
        words = [word for word in place.options if "=" in word]
        options |= {key: value for key, value in (word.split("=", 1) for word in words) if "executor.extraC" in key}
    asked = {"home": str(home), "master": master, "kind": kind, "cores": cores, "shapes": list(shapes)}
    request = home / "request.json"
    request.write_text(json.dumps({**asked, "growth": growth, "options": options}))
    env = environment(home) | ({} if place is None else place.env)
    env |= {
        "JDK_JAVA_OPTIONS": f"{env['JDK_JAVA_OPTIONS']} {_JVM}",
        "PYTHONPATH": f"{ROOT / 'spark'}{os.pathsep}{ROOT}",
    }
    say(f"{name}: {len(shapes)} streams")
    with (home / "output.txt").open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.planning.streams", str(request)],
            cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    if ended.returncode:
        raise JobError(f"{name} failed: {(home / 'output.txt').read_text()[-3000:]}")
    found: list[dict[str, Any]] = json.loads((home / "found.json").read_text())
    return found
