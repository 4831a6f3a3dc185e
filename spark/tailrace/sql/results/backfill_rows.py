"""The ledger rows that a backfill writes, in SQL: held answers are taken back, computed answers are fired."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.lake.schema.contracts import PANE, ledger_contract, spark_type
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.query_shapes import filled
from tailrace.sql.terms import Query, Relation, quoted


@dataclass(frozen=True)
class BackfillVersion:
    """The version of a backfill's rows: its run and generation, and the epoch and clock at which it read the log."""

    run: str
    generation: int
    epoch: int
    watermark: int
    processing_time: int


def pane_rows(pipeline: Pipeline, view: Relation, written: BackfillVersion) -> Query:
    """Write the SQL of the ledger rows of differences: retractions of held answers, panes of computed ones.

    `view` has the columns of `answers.differences`; `change` is changed, new or gone.
    """
    types = {name: spark_type(column.shape) for name, column in ledger_contract(pipeline).columns.items()}
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
    texts = []
    sides = (("old", "true", "change IN ('changed', 'gone')"), ("new", "false", "change IN ('changed', 'new')"))
    for which, retraction, holds in sides:
        values = common | {"retraction": retraction}
        values |= {name: quoted(f"{which}_{name}") for name in pipeline.results}
        if "answer" in types:
            inside = ", ".join(f"'{name}', {quoted(f'{which}_{name}')}" for name in pipeline.results)
            values["answer"] = f"NAMED_STRUCT({inside})"
            if which == "new":
                parts = ", ".join(f"'{name}', {quoted(f'part_{name}')}" for name in pipeline.parts)
                values["pending"] = f"NAMED_STRUCT({parts})"
        texts.append(f"SELECT {filled(types, values)} FROM {view} WHERE {holds}")
    return Query(" UNION ALL ".join(texts))
