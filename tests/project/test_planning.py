"""The model of larger clusters: its laws, and that the pages say what it says; what needs no Spark."""

from __future__ import annotations

import doctest
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# The folder `benchmarks` is not installed.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.planning import least_squares, pages, sizing
from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.least_squares import nonnegative
from benchmarks.planning.measuring import MEASURED, lower
from benchmarks.planning.model import Costs, Load, errors, fit, held_out
from benchmarks.planning.pages import DOCS, Planned, marks, written
from benchmarks.planning.prices import bill, on_machines, told
from benchmarks.planning.readings import worked
from benchmarks.planning.shapes import CLUSTER, ONE_CORE, SHAPES, Shape
from benchmarks.planning.simulate import COMMITS, Setting, load_of, simulated, sustainable
from benchmarks.planning.sizing import NEAR, SIZES, candidates

ASSUMED = Assumptions()
COSTS = Costs(
    tasks_of_source=5, tasks_of_shuffle=4, tasks_fixed=2, driver_epoch=0.5, driver_task=0.002, driver_file=0.001,
    driver_follow=0.1, driver_followed_row=1e-6, executor_task=0.008, executor_file=0.004, executor_record=6e-6,
    executor_touched=8e-6, executor_open=1e-6, seconds_epoch=0.2, seconds_of_driver=0.7, seconds_of_executor=1.2,
    seconds_known=1.5, heap=1e8, heap_epoch=4e6, heap_task=2e4, heap_window=300, commit_snapshot=1e-4,
    maintain_file=3e-3,
    maintain_record=1e-6, file_bytes=2e3, log_bytes=8, ledger_bytes=12, answer_bytes=10, metadata_fixed=1e4,
    metadata_snapshot=1e3, manifest_fixed=8e3, manifest_file=70, list_bytes=4e3,
)  # fmt: skip


@cache
def planned() -> Planned:
    return Planned.read()


def measured_with(costs: Costs) -> dict[str, Any]:
    """What would be measured if the model were the truth."""
    return {
        "streams": list(_streams(costs)),
        "commits": [
            {"snapshots": age, "cpu": 0.05 + costs.commit_snapshot * age,
             "metadata_bytes": costs.metadata_fixed + costs.metadata_snapshot * age} for age in (20, 100, 200)
        ],
        "maintenance": [
            {"files": files, "records": records,
             "cpu": costs.maintain_file * files + costs.maintain_record * records}
            for files, records in ((10, 1e6), (500, 1e5), (100, 2e6))
        ],
    }  # fmt: skip


def _streams(costs: Costs) -> Iterator[dict[str, Any]]:
    for kind, cores, shapes in (("local", 2, SHAPES), ("local", 1, SHAPES), ("cluster", 2, CLUSTER)):
        yield from (_stream(costs, kind, cores, shape) for shape in shapes if cores == 2 or shape.name in ONE_CORE)


def _stream(costs: Costs, kind: str, cores: int, shape: Shape) -> dict[str, Any]:
    load = Load(shape.records, shape.touched, shape.open, shape.sources, shape.shuffles, shape.follow <= 3)
    seconds, tasks, epochs = costs.seconds(load, cores), costs.tasks(load), shape.epochs

    python = 0.05 + costs.driver(load) - costs.driver(replace(load, followed=False))

    def kept(files: float, size: float) -> dict[str, float]:
        return {
            "snapshots": epochs + 2, "versions": 2 * epochs + 4, "files": files * epochs, "bytes": size,
            "manifests": epochs, "manifest_bytes": epochs * costs.manifest_fixed + costs.manifest_file * files * epochs,
            "list_bytes": costs.list_bytes * (epochs + 2),
            "metadata_bytes": costs.metadata_fixed + costs.metadata_snapshot * (epochs + 2),
        }  # fmt: skip

    return {
        "kind": kind, "cores": cores, "shape": asdict(shape), "seconds": seconds, "tasks": tasks,
        "phases": {"trigger": 0.0, "read": costs.seconds_known * seconds, "land": 0.0, "consume": 0.0, "step": 0.0,
                   "publish": 0.0},
        "driver_jvm_cpu": costs.driver(load) - python, "driver_python_cpu": python,
        "executor_cpu": costs.executor(load),
        "panes": shape.touched, "heap_before": costs.heap,
        "heap": costs.heap + epochs * (costs.heap_epoch + costs.heap_task * tasks)
        + (costs.heap_window * shape.open if kind == "local" else 0),
        "state_bytes": 0, "others_cores": 0.0, "waiting": 0.0,
        "tables": {
            "log": kept(shape.sources, costs.log_bytes * shape.landed + costs.file_bytes * epochs * shape.sources),
            "ledger": kept(2 * shape.shuffles, costs.ledger_bytes * (shape.open + (epochs - 1) * shape.touched)
                           + costs.file_bytes * epochs * 2 * shape.shuffles),
            "answers": kept(1, costs.answer_bytes * shape.open * (epochs + 1)),
        },
    }  # fmt: skip


def test_a_fit_gives_back_the_costs_that_made_the_measurements() -> None:
    measured = measured_with(COSTS)
    again = fit(measured)
    assert asdict(again) == pytest.approx(asdict(COSTS), rel=1e-6)
    for kind in ("local", "cluster"):
        off = errors(again, held_out(measured, kind))
        assert max(one.worst for one in off.values()) < 1e-6


@pytest.mark.parametrize("module", [least_squares, pages, sizing], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted > 0
    assert doctest.testmod(module).failed == 0


def test_no_coefficient_of_a_fit_is_below_zero_and_none_that_is_not_there_is_found() -> None:
    chance = random.Random(7)
    for _ in range(20):
        true = [chance.choice([0.0, chance.random()]) for _ in range(4)]
        rows = [[1.0, *(chance.random() * 10**size for size in (0, 3, 5))] for _ in range(12)]
        values = [0.01 + sum(a * b for a, b in zip(true, row, strict=True)) for row in rows]
        found = nonnegative(rows, values)
        assert found == pytest.approx([true[0] + 0.01, *true[1:]], rel=1e-5, abs=1e-9)
        worse = nonnegative(rows, [value * chance.uniform(0.5, 1.5) for value in values])
        assert min(worse) >= 0


@pytest.mark.parametrize("every", [0.0, 10.0])
def test_more_cores_never_sustain_fewer_records_nor_more_than_their_cpu_allows(every: float) -> None:
    before = 0.0
    for cores in (1, 2, 4, 16, 64, 256, 1024):
        setting = Setting(cores, 256, 64, every)
        # The keys are those of one number of cores, as more keys are more work.
        keys = replace(ASSUMED, keys_of_core=100_000 // cores)
        most = sustainable(COSTS, setting, keys)
        assert most >= before * 0.999
        assert most <= cores / COSTS.executor_record
        before = most


def test_every_record_is_in_an_epoch_or_behind_and_a_stream_falls_behind_beyond_what_it_sustains() -> None:
    setting = Setting(10, 10, 4, 10.0)
    most = sustainable(COSTS, setting, ASSUMED)
    for part, swing in ((0.6, 0.5), (1.3, 0.0)):
        day = simulated(COSTS, setting, ASSUMED, part * most, seconds=3600.0, swing=swing)
        assert day.records + day.behind == pytest.approx(
            part * most * day.seconds, rel=0.01 if swing else 1e-9
        )  # the rate of a day that swings is not the mean's in its last epoch
        assert (day.behind > 60 * most) == (part > 1)
        assert 0 < day.latency_p50 <= day.latency_p95
        assert day.executor_cpu / setting.cores <= day.seconds
        assert day.commits >= 4 * day.epochs
        assert sum(day.busy.values()) == pytest.approx(day.seconds)


def test_an_epochs_windows_are_no_more_than_its_records_or_its_keys() -> None:
    setting = Setting(10, 10, 4)
    for records in (0, 1, 100, 10_000, 10_000_000):
        load = load_of(setting, ASSUMED, records, 20.0)
        assert 0 <= load.touched <= min(records, load.open)


def test_the_sizes_are_within_their_limits_and_none_that_was_tried_sustains_much_more() -> None:
    for size, cores in zip(planned().sizes, SIZES, strict=True):
        assert size.setting.cores == cores
        assert size.day.latency_p95 <= ASSUMED.longest
        assert size.heap <= ASSUMED.most_heap
        assert size.day.behind <= 2 * size.day.largest
        costs = planned().costs
        close = [one for one in candidates(cores) if one.every == size.setting.every]
        assert size.sustained >= NEAR * max(
            sustainable(costs, one, ASSUMED) for one in close if one.sources == size.setting.sources
        )  # fmt: skip


def test_a_bill_is_of_parts_that_all_cost_something_and_of_prices_with_a_page_and_a_date() -> None:
    for size in planned().sizes:
        parts = asdict(bill(size, ASSUMED))
        assert min(parts.values()) > 0
        assert 0.3 < on_machines(size, ASSUMED) / parts["compute"] < 1, "machines cost less than what is run for one"
        assert bill(size, ASSUMED).together == pytest.approx(sum(parts.values()))
    for one in told()["prices"].values():
        assert one["price"] > 0
        assert one["page"].startswith("https://aws.amazon.com/")
        assert date.fromisoformat(one["date"]) <= date.fromisoformat(told()["read"])


def test_the_pages_have_the_tables_that_the_model_gives(tmp_path: Path) -> None:
    for page, mark in planned().sections():
        start, end = marks(mark)
        before, _, rest = (DOCS / page).read_text().partition(start)
        text, _, after = rest.partition(end)
        assert text.strip() == planned().sections()[page, mark], "run `make plan-size ARGS=write`"
        shown = tmp_path / page
        shown.write_text((shown.read_text() if shown.exists() else "") + f"{start}\nold\n{end}\n")
        assert before
        assert after
    assert [page.name for page in written(planned(), tmp_path)] == ["clusters.md", "cloud.md"]
    assert written(planned(), tmp_path) == []


def test_the_measurements_name_no_machine_and_have_each_shape_once() -> None:
    text = MEASURED.read_text()
    assert not re.search(r"/(tmp|home|root|work|Users)/|spark://|127\.0\.0\.1", text)
    for one in json.loads(text)["streams"]:
        for table in ("log", "ledger"):
            # Besides those of its epochs, a table has the versions of being made and of its writer's branch.
            assert 0 <= one["tables"][table]["versions"] - COMMITS * one["shape"]["epochs"] <= 4
    names = [(one["kind"], one["cores"], one["shape"]["name"]) for one in json.loads(text)["streams"]]
    wanted = [("local", 2, one.name) for one in SHAPES] + [("cluster", 2, one.name) for one in CLUSTER]
    assert sorted(names) == sorted([*wanted, *(("local", 1, name) for name in ONE_CORE)])


def test_of_a_shape_that_was_measured_twice_the_one_with_less_cpu_time_is_kept() -> None:
    dear = _stream(COSTS, "local", 2, SHAPES[0])
    cheap = {**dear, "executor_cpu": dear["executor_cpu"] / 2}
    other = {**dear, "cores": 1}
    assert lower([dear, cheap, other]) == lower([cheap, dear, other]) == [cheap, other]


def test_tasks_are_counted_from_when_to_when_of_sparks_events(tmp_path: Path) -> None:
    def task(end: float, stage: int) -> str:
        told = {"Executor CPU Time": 2e9, "Executor Deserialize CPU Time": 1e9, "Executor Run Time": 2500}
        return json.dumps(
            {
                "Event": "SparkListenerTaskEnd", "Stage ID": stage, "Stage Attempt ID": 0,
                "Task Info": {"Finish Time": end * 1000}, "Task Metrics": told,
            }, separators=(",", ":"),
        )  # fmt: skip

    log = tmp_path / "events"
    job = '{"Event":"SparkListenerJobEnd","Job ID":1,"Completion Time":12000}'
    log.write_text("\n".join([task(9.0, 0), task(10.0, 1), job, task(11.0, 1), task(20.0, 2), '{"Event":"Other"}']))
    found = worked(log, 10.0, 20.0)
    assert (found.jobs, found.stages, found.tasks, found.cpu, found.run) == (1, 1, 2, 6.0, 5.0)
