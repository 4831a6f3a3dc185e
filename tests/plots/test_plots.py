"""The plot of panes: everything is on the page, in its place, and the page needs nothing but itself."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tailrace.model.base.errors import TailraceError
from tailrace.plots.plot import (
    PanePlot,
    PlotError,
    PlotMissingError,
    PlotPane,
    PlotProduction,
    PlotRecord,
    PlotTable,
    Timing,
    Value,
    format_value,
)
from tailrace.plots.plot_page import render, render_png
from tailrace.plots.scene import KINDS, Scene, scene

NOON = datetime(2015, 8, 31, 12, tzinfo=UTC)
GLOBAL = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))


def at(clock: str) -> datetime:
    """`07:30` is half past seven minutes after noon, as the paper writes it."""
    minutes, seconds = map(int, clock.split(":"))
    return NOON + timedelta(minutes=minutes, seconds=seconds)


def pane(
    start: str, end: str, fired: str, value: Value, timing: Timing = "early", retraction: bool = False
) -> PlotPane:
    return PlotPane(at(start), at(end), at(fired), value, timing, retraction)


POINTS = "5@00:30>05:20 7@02:05>05:40 3@03:30>06:10 4@03:50>06:30 3@04:20>06:50 8@02:55>07:10 3@06:40>07:40 \
9@01:15>08:20 8@07:25>08:40 1@07:45>08:55"
RECORDS = [
    PlotRecord(at(event), at(arrives), value)
    for value, event, arrives in (re.split("[@>]", point) for point in POINTS.split())
]
WATERMARK = [
    (at(processing), at(mark))
    for processing, mark in [("06:05", "02:00"), ("07:30", "04:00"), ("07:50", "06:00"), ("09:10", "08:00")]
]
FIXED = [  # figure 13
    pane("00:00", "02:00", "06:00", 5),
    pane("02:00", "04:00", "06:00", 7),
    pane("00:00", "02:00", "06:05", 5, "on_time"),
    pane("02:00", "04:00", "07:00", 14),
    pane("04:00", "06:00", "07:00", 3),
    pane("02:00", "04:00", "07:30", 22, "on_time"),
    pane("04:00", "06:00", "07:50", 3, "on_time"),
    pane("00:00", "02:00", "08:20", 14, "late"),
    pane("06:00", "08:00", "09:10", 12, "on_time"),
]
SESSIONS = [  # figure 14
    pane("00:30", "01:30", "06:00", 5),
    pane("02:05", "03:05", "06:00", 7),
    pane("03:30", "05:20", "07:00", 10),
    pane("02:05", "03:05", "07:50", 7, "on_time", retraction=True),
    pane("03:30", "05:20", "07:50", 10, "on_time", retraction=True),
    pane("02:05", "05:20", "07:50", 25, "on_time"),
    pane("00:30", "01:30", "08:20", 5, "late", retraction=True),
    pane("02:05", "05:20", "08:20", 25, "late", retraction=True),
    pane("00:30", "05:20", "08:20", 39, "late"),
]
PLOT = PanePlot("Fixed windows", "figure 13", "the one key", "points", FIXED, RECORDS, WATERMARK)
CORRECTED = [*FIXED, *(replace(p, timing="correction", fired_at=NOON + timedelta(days=90)) for p in FIXED[-2:])]


def texts(laid: Scene) -> list[str]:
    return sorted(str(row["text"]) for row in laid.labels)


def milliseconds(moment: datetime) -> float:
    return moment.timestamp() * 1000


class Fetches(HTMLParser):
    """Collects all that a browser would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "iframe", "object", "embed", "img", "base", "image", "use"}:
            self.found.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "srcset", "action"} or name.startswith("on"):
                self.found.append(f"{name}={value}")
            self.found += re.findall(r"url\((?!['\"]?#)[^)]*\)", value or "")

    def handle_data(self, data: str) -> None:
        self.found += re.findall(r"@import.*|url\((?!['\"]?#)[^)]*\)", data)


def test_page_fetches_nothing_from_outside_and_runs_nothing() -> None:
    page = render(replace(PLOT, panes=SESSIONS, facts={"panes": "9"}, tables=[PlotTable("Panes", ["value"], [[1]])]))
    assert Fetches(page).found == []
    assert "default-src 'none'" in page


def test_the_same_plot_gives_the_same_page() -> None:
    assert render(PLOT) == render(PLOT)


def test_all_text_is_escaped() -> None:
    evil = '<script>alert("x")</script> & ·'
    page = render(
        PanePlot(
            title=evil,
            subtitle=evil,
            key=evil,
            value=evil,
            panes=[PlotPane(at("00:00"), at("02:00"), at("03:00"), evil, "early")],
            records=[PlotRecord(at("01:00"), at("02:00"), evil)],
            tables=[PlotTable(evil, [evil], [[evil]], note=evil)],
            facts={evil: evil},
        )
    )
    assert "<script" not in page
    assert 'alert("x")' not in re.sub(r"<[^>]*>", "", page.split("<svg")[0])
    assert Fetches(page).found == []
    assert page.count("&lt;script&gt;") >= 10


def test_every_pane_and_record_says_what_it_is_when_pointed_at() -> None:
    svg = re.search(r"<svg.*</svg>", render(PLOT), re.DOTALL)
    assert svg is not None
    titles = [title.text or "" for title in ElementTree.fromstring(svg[0]).iter("{http://www.w3.org/2000/svg}title")]
    late = "late pane: 14 points\nwindow 2015-08-31 12:00:00 to 2015-08-31 12:02:00\nfired 2015-08-31 12:08:20\n"
    assert late + "generation 0, epoch 0, index 0" in titles
    assert "record: 9\nhappened 2015-08-31 12:01:15\nknown 2015-08-31 12:08:20" in titles


def test_facts_and_tables_are_on_the_page() -> None:
    table = PlotTable("By hour", ["hour", "flights", "mean"], [[NOON, 12_345, 2.5], [None, 1, 0.25]], note="so far")
    page = render(replace(PLOT, facts={"too late": "4"}, tables=[table]))
    assert "<dt>too late</dt><dd>4</dd>" in page
    assert "<h2>By hour</h2><p>so far</p>" in page
    assert '<th>hour</th><th class="number">flights</th>' in page
    assert '<td>2015-08-31 12:00:00</td><td class="number">12,345</td><td class="number">2.5</td>' in page


def test_the_legend_names_the_kinds_that_occur_and_no_others() -> None:
    page = render(PLOT)
    named = {kind for kind, (name, _) in KINDS.items() if name.replace("'", "&#39;") in page or name in page}
    assert named == {"early", "on_time", "late"}


def test_the_legend_stays_when_there_is_a_break() -> None:
    page = render(replace(PLOT, panes=CORRECTED))
    assert KINDS["early"][0] in page
    assert KINDS["correction"][0] in page


def test_an_empty_plot_says_so() -> None:
    empty = PanePlot("Nothing", "yet", "k", "v")
    assert "no pane has fired yet" in render(empty)
    with pytest.raises(PlotError, match="neither a pane nor a record") as caught:
        render_png(empty)
    assert isinstance(caught.value, TailraceError)


def test_png_is_a_png_of_the_asked_scale() -> None:
    def width(png: bytes) -> int:
        assert png.startswith(b"\x89PNG")
        return int.from_bytes(png[16:20], "big")

    assert abs(width(render_png(PLOT, 1.0)) - 1150) < 80
    assert width(render_png(PLOT, 2.0)) == pytest.approx(2 * width(render_png(PLOT, 1.0)), abs=2)


def test_a_box_spans_its_window_and_begins_at_the_pane_before() -> None:
    laid = scene(PLOT)
    box = next(row for row in laid.boxes if "22 points" in str(row["tip"]))
    assert [box[side] for side in ("left", "right")] == [milliseconds(at(clock)) for clock in ("02:00", "04:00")]
    assert [box[side] for side in ("low", "high")] == [milliseconds(at(clock)) for clock in ("07:00", "07:30")]


def test_a_windows_first_box_begins_at_its_first_record() -> None:
    laid = scene(PLOT)
    box = next(row for row in laid.boxes if "7 points" in str(row["tip"]))
    assert box["low"] == milliseconds(at("05:40"))


def test_a_record_too_late_for_its_window_does_not_stretch_the_box() -> None:
    panes = [pane("00:00", "02:00", "06:00", 5)]
    late = PlotRecord(at("01:00"), at("05:00"), "1", too_late=True)
    laid = scene(replace(PLOT, panes=panes, records=[*RECORDS, late]))
    assert laid.boxes[0]["low"] == milliseconds(at("05:20"))


def test_a_retraction_has_a_minus_sign_and_a_colour_of_its_own() -> None:
    laid = scene(replace(PLOT, panes=SESSIONS))
    inks = {str(row["text"]): row["ink"] for row in laid.labels}
    assert {text for text, ink in inks.items() if ink == KINDS["retraction"][1]} == {"−7", "−10", "−5", "−25"}
    assert inks["39"] == KINDS["late"][1]


def test_a_negative_value_taken_back_keeps_its_sign() -> None:
    panes = [pane("00:00", "02:00", "06:00", -3), pane("00:00", "02:00", "07:00", -3, retraction=True)]
    assert texts(scene(replace(PLOT, panes=panes))) == ["−(−3)", "−3"]


def test_a_label_is_short_and_the_tooltip_exact() -> None:
    laid = scene(replace(PLOT, panes=[replace(FIXED[0], value=37.571428)]))
    assert texts(laid) == ["37.57"]
    assert "37.5714 points" in str(laid.boxes[0]["tip"])


def test_labels_do_not_lie_upon_each_other() -> None:
    crowd = [replace(FIXED[0], fired_at=at("06:00") + timedelta(seconds=n / 5), value=n) for n in range(1000)]
    laid = scene(replace(PLOT, panes=crowd))
    height = 15 * (laid.y[1] - laid.y[0]) / laid.height
    places = sorted((row["x"], row["y"]) for row in laid.labels)
    assert 20 < len(places) < 1000
    for (x, y), (other_x, other_y) in pairwise(places):
        assert x != other_x or abs(float(str(y)) - float(str(other_y))) >= height * 0.99


def test_the_last_answer_keeps_its_label_in_a_crowd() -> None:
    crowd = [replace(FIXED[0], fired_at=at("06:00") + timedelta(seconds=n), value=100 + n) for n in range(200)]
    laid = scene(replace(PLOT, panes=[*crowd, pane("00:00", "02:00", "09:21", 999, "on_time")]))
    assert "999" in texts(laid)


def test_a_global_window_is_clipped_to_what_there_is() -> None:
    panes = [PlotPane(*GLOBAL, at(fired), value, "early") for fired, value in [("06:00", 12), ("09:00", 51)]]
    laid = scene(replace(PLOT, panes=panes))
    assert laid.x[1] - laid.x[0] < milliseconds(at("09:00")) - milliseconds(at("00:00"))
    assert [(row["left"], row["right"]) for row in laid.boxes] == [laid.x, laid.x]
    assert "window ∞ to ∞" in str(laid.boxes[0]["tip"])


def test_a_global_window_without_records_can_be_drawn() -> None:
    render(PanePlot("Global", "", "k", "v", [PlotPane(*GLOBAL, at("06:00"), 12, "early")]))


def test_a_correction_months_later_goes_above_a_break_and_leaves_the_scale_alone() -> None:
    laid = scene(replace(PLOT, panes=CORRECTED))
    assert laid.y == scene(PLOT).y
    assert laid.far == ["2015-11-29 12:00 correction"]
    assert "89 days or more" in laid.far_note
    assert sorted(str(row["text"]) for row in laid.far_boxes) == ["12", "14"]


def test_more_corrections_than_panes_still_go_above_the_break() -> None:
    once = [p for p in FIXED if p.timing == "on_time"]
    taken = [replace(p, timing="correction", fired_at=NOON + timedelta(days=90), retraction=True) for p in once]
    given = [replace(p, retraction=False) for p in taken]
    laid = scene(replace(PLOT, panes=[*once, *taken, *given], records=[]))
    assert laid.far == ["2015-11-29 12:00 correction", "2015-11-29 12:00 retracted"]
    assert len(laid.far_boxes) == 8
    assert laid.y[1] < milliseconds(at("10:00"))


def test_a_window_corrected_twice_in_a_minute_gets_two_rows() -> None:
    twice = [replace(FIXED[0], timing="correction", fired_at=NOON + timedelta(days=90, seconds=n)) for n in (1, 2)]
    laid = scene(replace(PLOT, panes=[*FIXED, *twice]))
    assert len(laid.far) == len(laid.far_boxes) == 2


def test_a_correction_soon_after_stays_on_the_scale() -> None:
    laid = scene(replace(PLOT, panes=[*FIXED, pane("00:00", "02:00", "10:00", 15, "correction")]))
    assert laid.far == []
    assert "15" in texts(laid)


def test_rows_above_the_break_are_limited_and_say_what_is_left_out() -> None:
    many = [replace(FIXED[0], timing="correction", fired_at=NOON + timedelta(days=90, hours=n)) for n in range(20)]
    laid = scene(replace(PLOT, panes=[*FIXED, *many]))
    assert len(laid.far) == 14
    assert "6 more rows are not drawn" in laid.far_note


def test_the_watermark_is_a_stair_within_the_frame() -> None:
    months = [(NOON + timedelta(days=n), NOON + timedelta(days=n)) for n in (-90, 90)]
    laid = scene(replace(PLOT, watermark=[*WATERMARK, *months]))
    line = [(row["x"], row["y"]) for row in laid.lines if row["line"] == "watermark"]
    assert all(x == other_x or y == other_y for (x, y), (other_x, other_y) in pairwise(line))
    assert all(laid.y[0] <= float(str(y)) <= laid.y[1] for _, y in line)
    assert (milliseconds(at("04:00")), milliseconds(at("07:30"))) in line


def test_few_records_show_their_number_and_hundreds_are_dots() -> None:
    assert scene(PLOT).numbered
    hundreds = [replace(RECORDS[0], arrived_at=at("05:20") + timedelta(seconds=n)) for n in range(300)]
    laid = scene(replace(PLOT, records=hundreds))
    assert not laid.numbered
    assert len(laid.dots) == 300


def test_records_alone_can_be_drawn() -> None:
    assert "<svg" in render(replace(PLOT, panes=[], watermark=[]))
    assert "<svg" in render(replace(PLOT, panes=[], records=RECORDS[:1], watermark=[]))


def test_missing_libraries_name_the_extra_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tailrace.plots.chart", raising=False)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(PlotMissingError, match=re.escape("pip install 'tailrace[plot]'")):
        render(PLOT)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (1_234_567, "1,234,567"),
        (2.50, "2.5"),
        (-0.12345, "-0.1235"),
        (0.0, "0"),
        (0.000012, "1.2e-05"),
        (1e18, "1,000,000,000,000,000,000"),
        (float("nan"), "nan"),
        (True, "yes"),
        ("text", "text"),
        (datetime(2013, 3, 8, 15, 0, 0, 500_000, UTC), "2013-03-08 15:00:00.5"),
    ],
)
def test_values_are_written_for_people(value: object, expected: str) -> None:
    assert format_value(value) == expected


def test_what_a_computation_produced_is_drawn_where_it_is_and_is_never_far_off() -> None:
    made = [PlotProduction(at("04:00"), at("07:00"), "spike"), PlotProduction(at("30:00"), at("59:00"), "dip")]
    plot = replace(PLOT, panes=[], productions=made)
    laid = scene(plot)
    drawn = [(row["x"], row["y"], row["text"]) for row in laid.produced]
    assert drawn == [(milliseconds(one.event_time), milliseconds(one.produced_at), one.label) for one in made]
    assert not laid.far
    assert laid.x[1] > milliseconds(at("30:00"))
    assert laid.y[1] > milliseconds(at("59:00"))
    page = render(plot)
    assert "spike" in page
    assert "produced: dip points" in page
    assert ">produced<" in page, "the legend says what it is"
    assert ">produced<" not in render(PLOT)
    assert scene(replace(plot, records=[])).produced == laid.produced
