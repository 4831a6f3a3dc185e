"""The paper's figures 5 to 14, computed by Tailrace from the paper's ten points (Dataflow Model, 2.4)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import examples
from tailrace.model.samples.sample_records import Epochs
from tailrace.plots.chart import svg
from tailrace.plots.pipeline_simulation import PipelineSimulation, answers
from tailrace.plots.plot import PanePlot

NUMBERS = range(5, 15)

_SAID = {
    5: ("The ten points", "Each dot is a record: when it happened, and when it became known. The watermark is the "
        "system's judgement of how far event time is complete; the 9 proves it wrong."),
    6: ("A batch", "All records at once, one window: one answer at the end, and nothing before it."),
    7: ("A pane every minute, accumulating", "The same window, asked every minute of processing time. Each pane holds "
        "all so far, so whoever overwrites is right at any moment."),
    8: ("A pane every minute, discarding", "Each pane holds what came since the one before: for whoever adds up "
        "himself."),
    9: ("A pane every two records, discarding", "The trigger looks at the data and not at the clock. How much time a "
        "pane covers depends on the traffic."),
    10: ("Windows of two minutes, a batch", "Event time is cut in windows; a batch gives each once, all at the end."),
    11: ("Windows of two minutes, in micro-batches", "An epoch of a minute at a time: every window that got something "
         "in it fires."),
    12: ("At the watermark, with late panes", "Each window fires once as the watermark passes its end: the answer "
         "comes as soon as it is thought complete. What comes after corrects it: 14 in place of 5."),
    13: ("Early, on time and late", "Early panes every minute make the wait short, the pane at the watermark says "
         "that the window is thought complete, late panes mend what was not."),
    14: ("Sessions, accumulating and retracting", "Windows of one gap that grow together as records come. When two "
         "become one, their answers are taken back with the pane that replaces them, or the total would be doubled."),
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: its number, what it shows, and the plot. Figure 5 has no definition."""

    number: int
    title: str
    text: str
    plot: PanePlot
    pipeline: Pipeline | None


def figures() -> Iterator[Figure]:
    """Compute figures 5 to 14."""
    for number in NUMBERS:
        title, text = _SAID[number]
        pipeline = examples.figure(max(number, 6))
        simulation = PipelineSimulation(pipeline, _epochs(number))
        drawn = simulation.plot(("a",), "total", f"Figure {number}: {title}", answers(pipeline))
        if number == 5:
            drawn = PanePlot(
                title=drawn.title,
                subtitle="ten records of one key",
                key=drawn.key,
                value="value",
                records=drawn.records,
                watermark=drawn.watermark,
            )
        yield Figure(number, title, text, drawn, None if number == 5 else pipeline)


def page() -> str:
    """Write all figures on one self-contained page, each with its definition. The page fetches and runs nothing."""
    template = Template(files("tailrace.plots").joinpath("paper.html").read_text(encoding="utf-8"))
    return template.substitute(figures="\n".join(_section(one) for one in figures()))


def _section(figure: Figure) -> str:
    paragraph = f"<p>{html.escape(figure.text)}</p>"
    code = f"<p><code>{html.escape(answers(figure.pipeline))}</code></p>" if figure.pipeline else ""
    drawn = _apart(svg(figure.plot), f"figure-{figure.number}")
    heading = f'<h2 id="figure-{figure.number}">Figure {figure.number}: {html.escape(figure.title)}</h2>'
    return f"<section>{heading}{paragraph}{code}<figure>{drawn}</figure></section>"


def _apart(drawing: str, prefix: str) -> str:
    """Prefix the names in a drawing: to a browser, equal names on one page are one thing."""
    named = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', drawing)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', named))


def _epochs(number: int) -> Epochs:
    if number in (6, 10):
        end = instant(examples.at("09:20"))
        return [(examples.records(), Clock(0, END_OF_TIME, end))]
    made = examples.micro_batches() if number == 11 else examples.element_at_a_time(ends=number >= 12)
    return list(made)
