"""Compute figures 5 to 14 of the Dataflow Model paper from the paper's ten data points (section 2.4)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import examples
from tailrace.model.samples.sample_records import Epochs
from tailrace.plots.chart import svg
from tailrace.plots.pipeline_simulation import PipelineSimulation, answers_text
from tailrace.plots.plot import PanePlot
from tailrace.plots.plot_page import page_template


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: number, title, text, plot and pipeline. Figure 5 shows records and has no pipeline."""

    number: int
    title: str
    text: str
    plot: PanePlot
    pipeline: Pipeline | None


def figures() -> Iterator[Figure]:
    """Compute figures 5 to 14."""
    texts = tomllib.loads(files("tailrace.plots").joinpath("figures.toml").read_text(encoding="utf-8"))
    for number, said in ((int(number), said) for number, said in texts.items()):
        pipeline = examples.figure(max(number, 6))
        simulation = PipelineSimulation(pipeline, _epochs(number))
        drawn = simulation.plot(("a",), "total", f"Figure {number}: {said['title']}", answers_text(pipeline))
        if number == 5:
            drawn = replace(drawn, subtitle="ten records of one key", value="value", panes=(), tables=())
        yield Figure(number, said["title"], said["text"], drawn, None if number == 5 else pipeline)


def page() -> str:
    """Return a self-contained page with all figures and their definitions.

    The page loads nothing and runs no scripts.
    """
    return page_template("paper.html").render(figures=figures(), answers_text=answers_text, draw=_draw)


def _draw(figure: Figure) -> str:
    """Draw a figure as SVG, and add a prefix to all ids in the SVG, because ids must be unique on the page."""
    prefix = f"figure-{figure.number}"
    named = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg(figure.plot))
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', named))


def _epochs(number: int) -> Epochs:
    if number in (6, 10):
        end = instant(examples.at("09:20"))
        return [(examples.records(), Clock(0, END_OF_TIME, end))]
    made = examples.micro_batches() if number == 11 else examples.element_at_a_time(ends=number >= 12)
    return list(made)
