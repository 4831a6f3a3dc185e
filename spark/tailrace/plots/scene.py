"""Lay out a plot: compute the scales, the boxes, and the labels that fit. This module draws nothing.

Positions are in milliseconds since 1970 on both axes (Vega's unit for an instant); sizes are in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from tailrace.plots.plot import PanePlot, PlotPane, PlotProduction, PlotRecord, format_value, is_bounded

Row = dict[str, object]

WIDTH = 1040
MINUS = "\N{MINUS SIGN}"
_LINE = 15.0
_STRIP = 4.0
_MOST_NUMBERED = 40
_MOST_FAR = 14

KINDS = {
    "early": ("early: before the watermark", "#1f77b4"),
    "on_time": ("on time: watermark at the window's end", "#11875d"),
    "late": ("late: behind the watermark", "#b86200"),
    "correction": ("correction: by a backfill", "#7a3fb0"),
    "retraction": (f"{MINUS} retraction: taken back", "#c2203f"),
}
"""The name and the colour of each kind of pane, in the order of the legend."""

RECORDS = {False: "record", True: "record, too late for its window"}
PRODUCED = "produced"
LINES = ("watermark", "ideal watermark: no skew")


@dataclass(frozen=True)
class Scene:
    """The layout of a plot. The module `chart` draws the layout.

    Panes and records that are much later than most others are shown in rows above a break of the processing-time axis.
    `far` contains the names of these rows, latest first. `far_note` is a text that states how much later these rows
    are.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    height: int
    numbered: bool
    boxes: Sequence[Row]
    labels: Sequence[Row]
    dots: Sequence[Row]
    produced: Sequence[Row]
    lines: Sequence[Row]
    far: Sequence[str]
    far_note: str
    far_boxes: Sequence[Row]
    far_dots: Sequence[Row]


def scene(plot: PanePlot) -> Scene:
    """Lay out a plot.

    Panes and records that are much later than most others get separate rows, to keep the scale readable.
    """
    panes = sorted(plot.panes, key=lambda pane: (pane.fired_at, not pane.retraction, pane.window_start))
    limit = _break(plot)
    near = [pane for pane in panes if pane.fired_at <= limit]
    records = [record for record in plot.records if record.arrived_at <= limit]
    x = _event_domain(plot)
    height, y = _processing_domain(near, records, plot.productions)
    place = _Place(x, y, height)
    numbered = len(records) <= _MOST_NUMBERED and all(len(record.label) <= 3 for record in records)
    far, far_note, far_boxes, far_dots = _far(plot, limit, x)
    return Scene(
        x=x,
        y=y,
        height=height,
        numbered=numbered,
        boxes=_boxes(plot, near, records, place),
        labels=_labels(near, records if numbered else [], place),
        dots=[_dot(record) for record in records],
        produced=[_produced(plot, one) for one in plot.productions],
        lines=_lines(plot.watermark, x, y),
        far=far,
        far_note=far_note,
        far_boxes=far_boxes,
        far_dots=far_dots,
    )


@dataclass(frozen=True)
class _Place:
    """The scales of the axes.

    `across` converts a horizontal distance in pixels to milliseconds of event time; `up` converts a vertical distance
    in pixels to milliseconds of processing time.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    height: int

    def across(self, pixels: float) -> float:
        return pixels * (self.x[1] - self.x[0]) / WIDTH

    def up(self, pixels: float) -> float:
        return pixels * (self.y[1] - self.y[0]) / self.height

    def clip(self, start: datetime, end: datetime) -> tuple[float, float]:
        return max(_ms(start), self.x[0]), min(_ms(end), self.x[1])


def _ms(moment: datetime) -> float:
    return moment.timestamp() * 1000


def _break(plot: PanePlot) -> datetime:
    """Return the last moment below the break of the processing-time axis.

    The break is at the first long gap after at least 60% of the panes and records. A gap is long if it is more than one
    and a half times as long as the whole time before the gap. Panes of backfills are not counted, because a backfill
    may fire more panes for a key than the stream did. Backfill panes are counted only if there are no records and no
    panes of any other kind.
    """
    corrections = sorted(pane.fired_at for pane in plot.panes if pane.timing == "correction")
    moments = sorted(
        [pane.fired_at for pane in plot.panes if pane.timing != "correction"]
        + [record.arrived_at for record in plot.records]
    )
    # Productions are always drawn at their actual time, so the break must be above the last production.
    produced = [one.produced_at for one in plot.productions]
    moments = moments or corrections or sorted(produced)
    last = moments[-1]
    for number, (before, after) in enumerate(pairwise(moments), 1):
        if number >= 0.6 * len(moments) and after - before > 1.5 * (before - moments[0]) > timedelta(0):
            last = before
            break
    reach = last + (last - moments[0]) / 2
    return max([last, *produced, *(moment for moment in corrections if moment <= reach)])


def _event_domain(plot: PanePlot) -> tuple[float, float]:
    """Return the two bounds of the plot's range of event time, in milliseconds.

    The range contains all records, all productions, and the bounds of nearby windows. A global window has no bounds, so
    it does not extend the range.
    """
    bounds = [b for pane in plot.panes for b in (pane.window_start, pane.window_end) if is_bounded(b)]
    events = [record.event_time for record in plot.records] or bounds
    events += [one.event_time for one in plot.productions]
    events = events or [pane.fired_at for pane in plot.panes]
    low, high = _ms(min(events)), _ms(max(events))
    lengths = [_ms(pane.window_end) - _ms(pane.window_start) for pane in plot.panes]
    reach = max(high - low, min(lengths, default=0.0) if bounds else 0.0)
    edges = [low, high, *(_ms(b) for b in bounds if low - reach <= _ms(b) <= high + reach)]
    low, high = min(edges), max(edges)
    room = max((high - low) * 0.02, 500.0)
    return low - room, high + room


def _processing_domain(
    panes: Sequence[PlotPane], records: Sequence[PlotRecord], produced: Sequence[PlotProduction]
) -> tuple[int, tuple[float, float]]:
    """Return the plot's height in pixels and its range of processing time.

    The plot is high enough to keep a window's panes apart, but the height has a minimum and a maximum.
    """
    moments = [_ms(pane.fired_at) for pane in panes] + [_ms(record.arrived_at) for record in records]
    moments += [_ms(one.produced_at) for one in produced]
    low, high = min(moments), max(moments)
    span = max(high - low, 1000.0)
    windows: dict[tuple[datetime, datetime], set[float]] = {}
    for pane in panes:
        windows.setdefault((pane.window_start, pane.window_end), set()).add(_ms(pane.fired_at))
    gaps = [b - a for fired in windows.values() for a, b in pairwise(sorted(fired))]
    height = round(min(max(1.3 * _LINE * span / median(gaps) if gaps else 0, 480), 820))
    return height, (low - span * 18 / height, high + span * 34 / height)


def _bottom(pane: PlotPane, panes: Sequence[PlotPane], records: Sequence[PlotRecord]) -> float:
    """Return the lower edge of a pane's box, as a processing time.

    The lower edge is the time when the window's previous pane fired. For the window's first pane, the lower edge is the
    arrival time of the window's first record. If the window has no records before the pane, the lower edge is the time
    when the pane fired.
    """
    window = (pane.window_start, pane.window_end)
    fired = [
        other.fired_at
        for other in panes
        if (other.window_start, other.window_end) == window and other.fired_at < pane.fired_at and not other.retraction
    ]
    if fired:
        return _ms(max(fired))
    arrived = [
        record.arrived_at
        for record in records
        if window[0] <= record.event_time < window[1] and record.arrived_at <= pane.fired_at and not record.too_late
    ]
    return _ms(min(arrived, default=pane.fired_at))


def _kind(pane: PlotPane) -> str:
    return "retraction" if pane.retraction else pane.timing


def _label(pane: PlotPane) -> str:
    value = pane.value
    if isinstance(value, float) and abs(value) >= 0.1:
        value = round(value, 1 if abs(value) >= 100 else 2)
    text = format_value(value)
    negative = text.startswith("-")
    text = text.replace("-", MINUS, 1) if negative else text
    if not pane.retraction:
        return text
    return f"{MINUS}({text})" if negative else f"{MINUS}{text}"


def _bound(moment: datetime) -> str:
    return format_value(moment) if is_bounded(moment) else "∞"


def _tip(plot: PanePlot, pane: PlotPane) -> str:
    what = "retraction of" if pane.retraction else f"{pane.timing.replace('_', ' ')} pane:"
    window = f"window {_bound(pane.window_start)} to {_bound(pane.window_end)}"
    version = f"generation {pane.generation}, epoch {pane.epoch}, index {pane.index}"
    return (
        f"{what} {format_value(pane.value)} {plot.value} · {window} · fired {format_value(pane.fired_at)} · {version}"
    )


def _boxes(plot: PanePlot, panes: Sequence[PlotPane], records: Sequence[PlotRecord], place: _Place) -> list[Row]:
    """Build the boxes of the panes, the widest windows first, so that a smaller box is drawn on top of a wider box."""
    wide = sorted(panes, key=lambda pane: pane.window_start - pane.window_end)
    return [_box(plot, pane, place, _bottom(pane, panes, records)) for pane in wide]


def _box(plot: PanePlot, pane: PlotPane, place: _Place, bottom: float) -> Row:
    left, right = place.clip(pane.window_start, pane.window_end)
    top = _ms(pane.fired_at)
    if pane.retraction:  # a strip on the edge of the pane that replaces it
        bottom, top = top, top + place.up(_STRIP)
    return {"left": left, "right": right, "low": bottom, "high": top} | _paint(plot, pane)


def _paint(plot: PanePlot, pane: PlotPane) -> Row:
    name, ink = KINDS[_kind(pane)]
    return {"kind": name, "ink": ink, "tip": _tip(plot, pane)}


def _labels(panes: Sequence[PlotPane], obstacles: Sequence[PlotRecord], place: _Place) -> list[Row]:
    """Place the labels, the most important labels first. A label without room appears only in the tooltip."""
    taken = [(_ms(record.event_time), _ms(record.arrived_at), place.across(11), place.up(11)) for record in obstacles]
    dots = len(taken)
    rank = {"correction": 0, "late": 1, "on_time": 1, "retraction": 2, "early": 3}
    rows = []
    for pane in sorted(panes, key=lambda pane: (rank[_kind(pane)], -pane.fired_at.timestamp())):
        text = _label(pane)
        left, right = place.clip(pane.window_start, pane.window_end)
        half = place.across(3.8 * len(text) + 2), place.up(_LINE / 2)
        offset = _STRIP + _LINE / 2 if pane.retraction else -_LINE / 2 - 1.5
        at = _ms(pane.fired_at) + place.up(offset)
        middle, inner = (left + right) / 2, max((right - left) / 2 - half[0] * 1.3, 0)
        spots = [middle + inner * side for side in (0, -0.5, 0.5, -1, 1)]
        free = [spot for spot in spots if not _meets((spot, at, *half), taken)]
        # A label may cover a dot if there is no free position, but a label may never cover another label.
        free = free or [spot for spot in spots if not _meets((spot, at, *half), taken[dots:])]
        if free:
            taken.append((free[0], at, *half))
            rows.append({"x": free[0], "y": at, "text": text, "ink": KINDS[_kind(pane)][1]})
    return rows


def _meets(one: tuple[float, ...], others: Iterable[tuple[float, ...]]) -> bool:
    return any(abs(one[0] - o[0]) < one[2] + o[2] and abs(one[1] - o[1]) < one[3] + o[3] for o in others)


def _dot(record: PlotRecord) -> Row:
    name = RECORDS[record.too_late]
    tip = (
        f"{name}: {record.label} · happened {format_value(record.event_time)} · known {format_value(record.arrived_at)}"
    )
    return {
        "x": _ms(record.event_time),
        "y": _ms(record.arrived_at),
        "text": record.label,
        "kind": name,
        "tip": tip,
    }


def _produced(plot: PanePlot, one: PlotProduction) -> Row:
    tip = f"produced: {one.label} {plot.value} · of {format_value(one.event_time)} · at {format_value(one.produced_at)}"
    return {"x": _ms(one.event_time), "y": _ms(one.produced_at), "text": one.label, "kind": PRODUCED, "tip": tip}


def _lines(steps: Sequence[tuple[datetime, datetime]], x: tuple[float, float], y: tuple[float, float]) -> list[Row]:
    """Build two lines: the watermark as steps, cut off at the plot's edges, and the diagonal.

    On the diagonal, event time equals processing time (no skew).
    """
    beyond = x[1] - x[0]  # out of the frame, which clips, but not by thousands of years
    moments = [(_ms(at), min(max(_ms(mark), x[0] - beyond), x[1] + beyond)) for at, mark in sorted(steps)]
    before = [mark for at, mark in moments if at < y[0]]
    corners = [(before[-1], y[0])] if before else []
    for at, mark in moments:
        if y[0] <= at <= y[1]:
            corners += [(corners[-1][0], at), (mark, at)] if corners else [(mark, at)]
    corners += [(corners[-1][0], y[1])] if corners else []
    rows: list[Row] = [{"x": a, "y": b, "line": LINES[0], "order": n} for n, (a, b) in enumerate(corners)]
    low, high = max(x[0], y[0]), min(x[1], y[1])
    if low < high:
        rows += [{"x": at, "y": at, "line": LINES[1], "order": n} for n, at in enumerate((low, high))]
    return rows


def _far(plot: PanePlot, limit: datetime, x: tuple[float, float]) -> tuple[list[str], str, list[Row], list[Row]]:
    """Lay out the panes and records that are above the break of the processing-time axis, in rows.

    Returns four items: the names of the rows (latest first), a note about the rows, the boxes in the rows, and the dots
    in the rows.

    Each row covers one minute, and contains either the panes of one kind or the records. If a row would contain two
    panes of the same window, the second pane gets a separate row.
    """
    place = _Place(x, (0.0, 1.0), 1)
    order = [*KINDS, *RECORDS.values()]
    rows: dict[str, tuple[datetime, int]] = {}
    boxes: dict[tuple[str, float, float], Row] = {}
    dots: list[Row] = []
    for pane in sorted(plot.panes, key=lambda pane: pane.fired_at):
        if pane.fired_at <= limit:
            continue
        kind = _kind(pane)
        left, right = place.clip(pane.window_start, pane.window_end)
        word = "retracted" if pane.retraction else kind.replace("_", " ")
        row = f"{format_value(pane.fired_at)[:16]} {word}"
        if (row, left, right) in boxes:
            row = f"{format_value(pane.fired_at)} {word} {pane.index}"
        rows.setdefault(row, (pane.fired_at.replace(second=0, microsecond=0), -order.index(kind)))
        sides = {"row": row, "left": left, "right": right, "middle": (left + right) / 2}
        boxes[row, left, right] = sides | _paint(plot, pane) | {"text": _label(pane)}
    for record in plot.records:
        if record.arrived_at > limit:
            dot = _dot(record)
            row = f"{format_value(record.arrived_at)[:16]} record"
            rows.setdefault(row, (record.arrived_at, -order.index(str(dot["kind"]))))
            dots.append(dot | {"row": row})
    drawn = sorted(rows, key=lambda row: rows[row])[:_MOST_FAR]
    held = [box for box in boxes.values() if box["row"] in drawn]
    note = _far_note(rows[drawn[0]][0] - limit, len(rows) - len(drawn)) if drawn else ""
    return drawn[::-1], note, held, [dot for dot in dots if dot["row"] in drawn]


def _far_note(wait: timedelta, left_out: int) -> str:
    length = f"{wait.days} days" if wait.days > 1 else f"{wait / timedelta(hours=1):.1f} hours"
    more = f" ({left_out} more rows are not drawn)" if left_out else ""
    return f"The axis is broken here: the rows above came {length} or more after all below{more}."
