"""The dashboard, the alert rules and the docs tell of the metrics that there are, and of no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tailrace.telemetry import metrics
from tailrace.telemetry.metrics import METRICS, Metric

ROOT = Path(__file__).parents[2]
DASHBOARD = Path(metrics.__file__).parent / "grafana" / "tailrace.json"
ALERTS = Path(metrics.__file__).parent / "prometheus" / "tailrace.yml"
PAGE = ROOT / "docs" / "observing.md"
BY_NAME = {one.name: one for one in METRICS}
PARTS = ("_bucket", "_sum", "_count")
ADDED = {"le", "job", "instance"}
"""Labels that Prometheus adds."""
INTERVAL = re.compile(r"\$__rate_interval")


def selectors(expression: str) -> list[Any]:
    """The selectors of series in an expression."""
    found: list[Any] = []

    def seen(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        return True

    promql_parser.walk(promql_parser.parse(INTERVAL.sub("5m", expression)), seen)
    return found


def metric_of(name: str) -> Metric:
    """The metric that a series is of."""
    for part in PARTS:
        base = BY_NAME.get(name.removesuffix(part))
        if base is not None and base.kind == "histogram" and name.endswith(part):
            return base
    assert name in BY_NAME, f"there is no metric {name}"
    assert BY_NAME[name].kind != "histogram", f"{name} has no series of that name"
    return BY_NAME[name]


def asked(expression: str) -> set[str]:
    """The metrics that an expression asks for, each with labels that it has."""
    names = set()
    for selector in selectors(expression):
        metric = metric_of(selector.name)
        for matcher in selector.matchers.matchers:
            assert matcher.name in {*metric.labels, *ADDED}, f"{metric.name} has no label {matcher.name}"
        names.add(metric.name)
    for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
        labels = {label for name in names for label in BY_NAME[name].labels}
        assert set(re.split(r",\s*", grouped)) <= labels | ADDED, expression
    return names


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_every_metric_is_in_the_dashboard_and_there_is_no_other_in_it() -> None:
    shown = set().union(*(asked(expression) for expression in expressions()))
    assert shown == set(BY_NAME)


def test_the_dashboard_asks_the_data_source_that_is_chosen() -> None:
    board = json.loads(DASHBOARD.read_text())
    first, *others = board["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    assert [one["name"] for one in others] == ["log", "pipeline"]
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [*others, *(panel for panel in board["panels"] if panel["type"] != "row")]
    asking += [target for panel in board["panels"] for target in panel.get("targets", ())]
    assert all(one["datasource"] == chosen for one in asking)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & taken, panel["title"]
        assert max(x for x, _ in own) < 24
        taken |= own


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_metrics_that_there_are_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert asked(rule["expr"])
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description"} == set(rule["annotations"])
    labels = {label for name in asked(rule["expr"]) for label in BY_NAME[name].labels}
    said = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
    assert set(said) <= labels
    assert any(said) or "$value" in rule["annotations"]["summary"]


def test_an_alert_that_asks_for_what_there_is_not_is_found() -> None:
    with pytest.raises(AssertionError, match="no metric tailrace_nothing"):
        asked("rate(tailrace_nothing[5m])")
    with pytest.raises(AssertionError, match="no label key"):
        asked('tailrace_open_windows{key="EWR"}')
    with pytest.raises(AssertionError, match="no series of that name"):
        asked("tailrace_epoch_phase_seconds")


def table() -> list[str]:
    """The table of the page, as the code has it."""
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for one in METRICS:
        rows.append(f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.doc} |")
    return rows


def test_the_page_has_every_metric_as_the_code_has_it() -> None:
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `tailrace_")]
    assert found == table()[2:]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for one in METRICS:
        assert re.fullmatch(r"tailrace_[a-z_]+", one.name)
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        assert one.kind != "histogram" or one.name.endswith("_seconds")
        assert "key" not in one.labels
        assert not one.doc.endswith(".")
