"""The ledger rows that a backfill writes, in SQL: held answers are taken back, computed answers are fired."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.lake.schema.contracts import OPEN, PANE
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch import part_columns
from tailrace.sql.query_shapes import select_list
from tailrace.sql.terms import Condition, Query, Relation, quoted


@dataclass(frozen=True)
class BackfillVersion:
    """The version of a backfill's rows: its run and generation, and the epoch and clock at which it read the log."""

    run: str
    generation: int
    epoch: int
    watermark: int
    processing_time: int


CORRECTIONS = (("old", "true", "change IN ('changed', 'gone')"), ("new", "false", "change IN ('changed', 'new')"))
"""The retractions and the computed rows of differences: the prefix of their columns, `retraction`, and a condition."""


def pane_rows(pipeline: Pipeline, view: Relation, written: BackfillVersion, open_: Condition | None = None) -> Query:
    """Write the SQL of the ledger rows of differences: retractions of held answers, panes of computed ones.

    `view` has the columns of `ComparedRows.differences`; `change` is changed, new or gone. `open_` is the condition by
    which later stages are to read a row (`stage_records.sent_with`); None where the stream cannot reach the windows any
    more.
    """
    types = ledger_contract(pipeline).types
    common = {
        "kind": f"'{PANE}'",
        "window_start": "TIMESTAMP_MICROS(window_start)",
        "window_end": "TIMESTAMP_MICROS(window_end)",
        "generation": f"{written.generation}L",
        "epoch": f"{written.epoch}L",
        "pane_index": "0L",
        "timing": "'correction'",
        "watermark": f"TIMESTAMP_MICROS({written.watermark}L)",
        "processing_time": f"TIMESTAMP_MICROS({written.processing_time}L)",
        "writer": "'backfill'",
        **{name: quoted(name) for name in pipeline.key},
    }
    if open_ is not None:
        common["reason"] = f"IF({open_}, '{OPEN}', NULL)"
    texts = []
    for which, retraction, holds in CORRECTIONS:
        values = common | {"retraction": retraction}
        values |= {name: quoted(f"{which}_{name}") for name in pipeline.answer_columns}
        if "answer" in types:
            inside = ", ".join(f"'{name}', {quoted(f'{which}_{name}')}" for name in pipeline.answer_columns)
            values["answer"] = f"NAMED_STRUCT({inside})"
            if which == "new":
                values["pending"] = part_columns.struct(pipeline, "part_")
        texts.append(f"SELECT {select_list(types, values)} FROM {view} WHERE {holds}")
    return Query(" UNION ALL ".join(texts))
