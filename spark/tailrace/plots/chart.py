"""Draw a plot from its layout (`Scene`) with Vega-Lite (altair), and convert the plot to SVG or PNG (vl-convert)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from tailrace.plots.plot import PanePlot, PlotMissingError
from tailrace.plots.scene import KINDS, LINES, PRODUCED, RECORDS, WIDTH, Scene, scene

try:
    import altair as alt
    import vl_convert
except ImportError:
    raise PlotMissingError("altair and vl-convert-python are not installed: pip install 'tailrace[plot]'") from None

_SVG = "http://www.w3.org/2000/svg"
_LOOK = json.loads(files("tailrace.plots").joinpath("look.json").read_text(encoding="utf-8"))
"""The look of a chart: Vega's configuration, the formats of instants, and the dark colour for each light colour."""

_INK, _WRONG, _MADE = "#1d2733", "#c2203f", "#7a3fb0"
_TICKS = 12
_FAR_ROW = 26
_BOX: dict[str, Any] = {"fillOpacity": 0.62, "strokeOpacity": 0.6, "strokeWidth": 1}
_BOLD: dict[str, Any] = {"fontSize": 13, "fontWeight": "bold", "baseline": "middle"}
_RIM: dict[str, Any] = {"stroke": "white", "strokeWidth": 3.5, "strokeJoin": "round"}
_TEXT, _TIP = alt.Text("text:N"), alt.Description("tip:N")
_ROWS = ("boxes", "lines", "labels", "dots", "produced", "far_boxes", "far_dots")
"""The names of the fields of `Scene` that contain the rows for the chart's marks."""


def svg(plot: PanePlot) -> str:
    """Draw the chart as an SVG element.

    The title of each mark is the mark's description, which browsers show as a tooltip.
    """
    laid = scene(plot)
    drawn = vl_convert.vegalite_to_svg(_specification(_chart(laid), laid), allowed_base_urls=[])
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(drawn)
    numbers: dict[str, str] = {}
    for mark in list(root.iter()):
        for name in ("id", "clip-path"):
            if clip := re.search(r"clip\d+", mark.get(name, "")):
                # Vega numbers the clip paths of all charts in one sequence. Renumber this chart's clip paths, so that
                # the same plot always produces the same page.
                number = numbers.setdefault(clip[0], f"frame{len(numbers)}")
                mark.set(name, mark.get(name, "").replace(clip[0], number))
        tip = mark.get("aria-label", "")
        if mark.get("role") == "graphics-symbol" and " · " in tip:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = tip.replace(" · ", "\n")
            mark.insert(0, title)
    return ElementTree.tostring(root, encoding="unicode")


def png(plot: PanePlot, scale: float) -> bytes:
    """Draw the chart as a PNG that includes the plot's title and subtitle."""
    title = alt.Title(plot.title, subtitle=[plot.subtitle, f"{plot.value} for {plot.key}"], anchor="start")
    laid = scene(plot)
    spec = _specification(_chart(laid).properties(title=title), laid)
    return vl_convert.vegalite_to_png(spec, scale=scale, allowed_base_urls=[])


def _specification(chart: alt.VConcatChart, laid: Scene, *, validate: bool = True) -> dict[str, Any]:
    specification = chart.to_dict(validate=validate)
    # Add the rows only to the finished specification. If the rows were in the charts, altair would copy all rows with
    # each chart.
    specification["datasets"] = {name: list(getattr(laid, name)) for name in _ROWS}
    specification["datasets"]["edges"] = [row for row in laid.boxes if row["kind"] != KINDS["retraction"][0]]
    # Add the configuration here, because altair's schema lacks Vega's setting that stacks legends vertically.
    return specification | {"config": _LOOK["config"]}


def _chart(laid: Scene) -> alt.VConcatChart:
    charts = [alt.layer(*_main(laid)).properties(width=WIDTH, height=laid.height)]
    if laid.far:
        note = alt.Title(laid.far_note, anchor="start", orient="bottom", frame="group", fontSize=12.5, color=_WRONG)
        rows = alt.layer(*_far(laid)).properties(width=WIDTH, height=_FAR_ROW * len(laid.far), title=note)
        charts.insert(0, rows)
    # Each chart has separate scales. With shared scales, no chart would have a legend, because the charts above the
    # axis's break have no legend.
    own: dict[str, Any] = dict.fromkeys(("fill", "stroke", "shape"), "independent")
    chart: alt.VConcatChart = alt.vconcat(*charts, spacing=10).resolve_scale(**own)
    return chart


def _main(laid: Scene) -> list[alt.Chart]:
    x = _instants("event time (when it happened)", laid.x)
    y = _instants("processing time (when it became known)", laid.y)
    across, up, left = alt.X("x:T", **x), alt.Y("y:T", **y), alt.X("left:T", **x)
    rows, edges, line, text = map(_data, ("boxes", "edges", "lines", "labels"))
    return [
        rows.mark_rect(**_BOX, clip=True).encode(
            left, alt.X2("right"), alt.Y("low:T", **y), alt.Y2("high"), *_colours(laid), _TIP
        ),
        edges.mark_rule(clip=True, strokeWidth=3).encode(
            left, alt.X2("right"), alt.Y("high:T", **y), _colours(laid)[1], _TIP
        ),
        line.mark_line(clip=True, strokeWidth=1.6, color=_INK).encode(across, up, _dash(laid), alt.Order("order:Q")),
        *_records(laid, "dots", across, up),
        *(_produced(laid, across, up) if laid.produced else ()),
        # Draw the text twice, the first time as a white outline, so that the text is legible on lines and edges.
        text.mark_text(**_BOLD, **_RIM).encode(across, up, _TEXT),
        text.mark_text(**_BOLD).encode(across, up, _TEXT, alt.Color("ink:N", scale=None)),
    ]


def _far(laid: Scene) -> list[alt.LayerChart | alt.Chart]:
    x = _instants(None, laid.x) | {"axis": alt.Axis(labels=False, ticks=False, title=None, grid=False)}
    axis = alt.Axis(title=None, labelLimit=0, ticks=False, grid=False, labelPadding=6)
    row = alt.Y("row:N", sort=list(laid.far), scale=alt.Scale(domain=list(laid.far), padding=0.08), axis=axis)
    rows = _data("far_boxes")
    fill, stroke = _colours(laid, legend=False)
    return [
        rows.mark_rect(**_BOX).encode(alt.X("left:T", **x), alt.X2("right"), row, fill, stroke, _TIP),
        *_records(laid, "far_dots", alt.X("x:T", **x), row, legend=False),
        rows.mark_text(**_BOLD).encode(alt.X("middle:T", **x), row, _TEXT, alt.Color("ink:N", scale=None)),
    ]


def _records(laid: Scene, rows: str, across: alt.X, up: alt.Y, legend: bool = True) -> list[alt.Chart]:
    """Draw the records as dots. If there are few records, the dots are large and contain labels."""
    shape = _shape(laid, legend)
    wrong = alt.datum.kind == RECORDS[True]
    ink = alt.when(wrong).then(alt.value(_WRONG)).otherwise(alt.value(_INK))
    if not laid.numbered:
        dot = _data(rows).mark_point(filled=True, opacity=0.75)
        size = alt.when(wrong).then(alt.value(70)).otherwise(alt.value(22))
        return [dot.encode(across, up, shape, _TIP, color=ink, size=size)]
    # A dot with a label of three characters must be larger, and a diamond has less room for text than a circle.
    room = alt.expr(f"(length(datum.text) > 2 ? 680 : 430) * (datum.kind == '{RECORDS[True]}' ? 1.9 : 1)")
    ring = _data(rows).mark_point(size=room, strokeWidth=1.5, fill="white", opacity=1)
    text = _data(rows).mark_text(fontSize=12, baseline="middle").encode(across, up, _TEXT, color=ink)
    return [ring.encode(across, up, shape, _TIP, stroke=ink), text]


def _produced(laid: Scene, across: alt.X, up: alt.Y) -> list[alt.Chart]:
    """Draw the productions as triangles, each with a label next to it.

    The labels have a white outline, so that they are legible on dots.
    """
    rows = _data("produced")
    mark = rows.mark_point(filled=True, opacity=1, size=220, color=_MADE)
    text = {**_BOLD, "align": "right", "dx": -12}
    return [
        mark.encode(across, up, _shape(laid, legend=True), _TIP),
        rows.mark_text(**text, **_RIM).encode(across, up, _TEXT),
        rows.mark_text(**text, color=_MADE).encode(across, up, _TEXT),
    ]


def _shape(laid: Scene, legend: bool) -> alt.Shape:
    """Choose a shape for each kind of point in the plot."""
    marks = {RECORDS[False]: "circle", RECORDS[True]: "diamond" if laid.numbered else "cross", PRODUCED: "triangle-up"}
    drawn = {row["kind"] for row in (*laid.dots, *laid.far_dots, *laid.produced)}
    names = [name for name in marks if name in drawn]
    return alt.Shape(
        "kind:N",
        scale=alt.Scale(domain=names, range=[marks[name] for name in names]),
        legend=alt.Legend(title=None) if legend and names else None,
    )


def _data(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=name))


def _instants(title: str | None, domain: tuple[float, float]) -> dict[str, Any]:
    """Build a UTC axis. The ticks have round steps, labels are as precise as the step, and midnight shows the date."""
    if title is not None:
        first = datetime.fromtimestamp(domain[0] / 1000, UTC)
        title = f"{title}, from {first.day} {first:%b %Y}"
    axis = alt.Axis(title=title, tickCount=_TICKS, format=_LOOK["instants"], labelOverlap=True)
    return {"scale": alt.Scale(type="utc", domain=list(domain), nice=False, zero=False), "axis": axis}


def _colours(laid: Scene, legend: bool = True) -> tuple[alt.Fill, alt.Stroke]:
    """Choose a pale fill and a full-strength stroke for each kind of pane; the fill and the stroke share one legend."""
    used = {row["kind"] for row in [*laid.boxes, *laid.far_boxes]}
    kinds = [(name, ink) for name, ink in KINDS.values() if name in used]
    names = [name for name, _ in kinds]
    # Create no legend without entries, because such a legend would make the drawing infinitely large.
    key = alt.Legend(title=None, symbolType="square", columns=5) if legend and names else None
    fill = alt.Scale(domain=names, range=[_pale(ink) for _, ink in kinds])
    stroke = alt.Scale(domain=names, range=[ink for _, ink in kinds])
    return alt.Fill("kind:N", scale=fill, legend=key), alt.Stroke("kind:N", scale=stroke, legend=key)


def _pale(ink: str, paper: str = "#ffffff") -> str:
    """Mix one part of a colour with three parts of the paper's colour."""
    pairs = ((int(ink[at : at + 2], 16), int(paper[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{(one + other * 3) // 4:02x}" for one, other in pairs)


def _dash(laid: Scene) -> alt.StrokeDash:
    dashes = {LINES[0]: [5, 4], LINES[1]: [2, 4]}
    names = [name for name in LINES if any(row["line"] == name for row in laid.lines)]
    scale = alt.Scale(domain=names, range=[dashes[name] for name in names])
    key = alt.Legend(title=None, symbolType="stroke") if names else None
    return alt.StrokeDash("line:N", scale=scale, legend=key)


def vega(plot: PanePlot, *, dark: bool = False) -> dict[str, Any]:
    """Compile the chart for a page that runs Vega with its expression interpreter. If `dark` is True, use dark
    colours.
    """
    laid = scene(plot)
    made = _specification(_chart(laid), laid, validate=False)
    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(_recolour(made, _dark_colours()) if dark else made)
    return dict(_plain_instants(compiled))


def _plain_instants(part: Any) -> Any:
    """Convert each expression that Vega-Lite's compiler generated for an instant to a number.

    Vega's interpreter cannot evaluate such an expression. If a list (the domain of a scale) has such expressions next
    to other entries, the expressions are dropped, because the other entries contain the same values.
    """
    if isinstance(part, dict):
        found = _INSTANT.fullmatch(str(part.get("signal", "")))
        return float(found[1]) if found else {name: _plain_instants(value) for name, value in part.items()}
    if isinstance(part, list):
        repeated = [one for one in part if isinstance(one, dict) and str(one.get("signal", "")).startswith("{data: ")]
        return [_plain_instants(one) for one in part if one not in repeated or len(repeated) == len(part)]
    return part


_INSTANT = re.compile(r"(?:datetime\(|\{data: datetime\()(-?[0-9.e+]+)\)\}?")


def _dark_colours() -> dict[str, str]:
    """Return the dark colour for each colour of a light page, including the pale fills of panes."""
    colours: dict[str, str] = _LOOK["dark"]
    return colours | {_pale(ink): _pale(colours[ink], colours["white"]) for _, ink in KINDS.values()}


def _recolour(part: Any, colours: Mapping[str, str]) -> Any:
    """Replace the colours in a specification, but leave the values of text fields unchanged."""
    if isinstance(part, dict):
        texts = ("text", "tip", "kind", "row", "line")
        return {
            name: value if name in texts and isinstance(value, str) else _recolour(value, colours)
            for name, value in part.items()
        }
    if isinstance(part, list):
        return [_recolour(value, colours) for value in part]
    return colours.get(part, part) if isinstance(part, str) else part
