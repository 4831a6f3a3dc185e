"""Write the page with a run's result: the tab *What it did* of a run in Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #1f2933; background: #fff; }
h1 { font-size: 1.15rem; margin: 0 0 .2rem; } p.said { font-size: 1.05rem; margin: .2rem 0 1rem; }
p.failed { color: #a61b1b; } table { border-collapse: collapse; margin: .4rem 0 1.2rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e4e7eb; vertical-align: top; }
th { font-weight: 600; color: #52606d; }
td { overflow-wrap: anywhere; } table.runs { font-size: 13px; } table.runs td { white-space: pre; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
@media (prefers-color-scheme: dark) { body { color: #e4e7eb; background: #18181b; } th { color: #9aa5b1; }
  th, td { border-color: #3e4c59; } p.failed { color: #ff9b9b; } }
"""

RESULT = "did"
"""The XCom with a run's result, or the reason of its failure."""

COUNTED = ("changed", "untouched", "retracted")


def page(did: Mapping[str, Any] | None, state: str) -> str:
    """Write the page of a run from its task's report `did`; None if it has not reported yet."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What it did</title><style>{STYLE}</style>'
        f"</head><body>{''.join(_body(did, state))}</body></html>"
    )


def _body(did: Mapping[str, Any] | None, state: str) -> Iterator[str]:
    if did is None:
        yield f"<p>This run is {escape(state)}; it has not said anything yet.</p>"
        return
    yield f"<h1>{escape(str(did.get('pipeline', '')))}</h1>"
    if "failed" in did:
        yield f'<p class="said failed">Failed: {escape(str(did["failed"]))}</p>'
        yield "<p>What it had committed is whole. Clear the task to run it again.</p>"
    else:
        yield f'<p class="said">{escape(str(did["said"]))}</p>'
    yield _table(list(_facts(did)))
    if did.get("behind"):
        yield "<h1>Behind what was corrected</h1>"
        yield "".join(f"<p>{escape(str(one))}</p>" for one in did["behind"])
        ranges = " and ".join(f"{first} to {last}" for first, last in did.get("brings_up", ()))
        if ranges:
            yield f"<p>To bring it up, trigger a run over {escape(ranges)}.</p>"
    if did.get("parts"):
        yield "<h1>Its runs</h1>"
        yield _runs(did["parts"])
    if did.get("tables"):
        yield _tables(did["tables"])


def _facts(did: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "range" in did:
        yield "windows", " to ".join(map(str, did["range"]))
    if did.get("reason"):
        yield "reason", str(did["reason"])
    if did.get("dry_run"):
        yield "dry run", "yes: nothing was changed"
    if "epoch" in did:
        yield "log", f"up to epoch {did['epoch']}"
    if did.get("generations"):
        yield "generation", ", ".join(map(str, did["generations"]))
    for name in COUNTED:
        if name in did:
            yield name, f"{did[name]:,} windows"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _runs(parts: list[Mapping[str, Any]]) -> str:
    heads = ("run", "pipeline", "windows from, to", "status", "engine", "generation", *COUNTED, "seconds")
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for part in parts:
        other = part.get("gave_way_to")
        status = str(part["status"]).replace("_", " ") + (f" to {other['run']}" if other else "")
        words = (part["run"] or "–", part["pipeline"], "\n".join(part["range"]), status, part.get("engine", "–"))
        numbers = (part["generation"] or "–", *(f"{part[name]:,}" for name in COUNTED), f"{part['seconds']:.1f}")
        lines.append(_line(words, numbers))
    return _lines(lines)


def _tables(tables: list[Mapping[str, Any]]) -> str:
    """Write the results of maintenance for each table."""
    lines = ["<th>table</th><th>written together</th><th>expired</th><th>orphans</th><th>seconds</th>"]
    for table in tables:
        counts = table["rewritten"].items()
        written = ", ".join(f"{count['from']:,} {what} to {count['to']:,}" for what, count in counts)
        numbers = (f"{table['expired']:,}", f"{table['orphan_files']:,}", f"{table['seconds']:.1f}")
        lines.append(_line((table["table"], written or "–"), numbers))
    return _lines(lines)


def _line(words: Iterable[object], numbers: Iterable[object]) -> str:
    cells = "".join(f"<td>{escape(str(word))}</td>" for word in words)
    return cells + "".join(f'<td class="n">{escape(str(number))}</td>' for number in numbers)


def _lines(lines: Iterable[str]) -> str:
    return '<table class="runs">' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
