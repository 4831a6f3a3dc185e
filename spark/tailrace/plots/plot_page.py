"""The page that shows a plot: event time to the right, processing time upwards, and a box for each pane.

`render` returns one page of HTML that loads nothing and runs no scripts: the chart is inline SVG, and browsers show the
titles of the chart's marks as tooltips. `render_png` returns the chart alone. Both functions need the extra `plot`
(altair, vl-convert-python, jinja2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.plots.plot import PanePlot, PlotError, PlotMissingError, format_value

if TYPE_CHECKING:
    import jinja2


def templates(*packages: str) -> jinja2.Environment:
    """Create the Jinja environment for the templates of some packages.

    The environment escapes all values and raises an error for an undefined name. Raises `PlotMissingError` if jinja2 is
    not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise PlotMissingError("jinja2 is not installed: pip install 'tailrace[plot]'") from None
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one) for one in packages]), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def page_template(name: str) -> jinja2.Template:
    """Load the template of a plot's page. Raises `PlotMissingError` if jinja2 is not installed."""
    environment = templates("tailrace.plots")
    environment.filters["written"] = format_value
    environment.tests["numeric"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return environment.get_template(name)


def render(plot: PanePlot) -> str:
    """Render a self-contained page with title, facts, chart, reading instructions and tables.

    The page loads nothing and runs no scripts. If the plot has no panes and no records, a sentence replaces the chart.
    All text is escaped. The same plot always produces the same page.

    Raises:
        PlotMissingError: the extra `plot` is not installed.
    """
    chart = None
    if plot.panes or plot.records:
        from tailrace.plots.chart import svg

        chart = svg(plot)
    return page_template("plot.html").render(plot=plot, chart=chart)


def render_png(plot: PanePlot, scale: float = 2.0) -> bytes:
    """Render only the chart, as a PNG that includes the title and is about 1,200 times `scale` pixels wide.

    Raises:
        PlotError: the plot has no panes and no records.
        PlotMissingError: the extra `plot` is not installed.
    """
    if not plot.panes and not plot.records:
        raise PlotError(f"plot {plot.title!r} has neither a pane nor a record: expected one of them to draw")
    from tailrace.plots.chart import png

    return png(plot, scale)
