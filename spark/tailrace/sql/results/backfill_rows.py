"""Write the ledger rows of a backfill in SQL: retractions of current answers, and panes with computed answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import OPEN, PANE
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch import part_columns
from tailrace.sql.query_shapes import instants, named_struct, select_list
from tailrace.sql.terms import Condition, Query, Relation, bracketed, quoted


@dataclass(frozen=True)
class BackfillVersion:
    """The version of a backfill's rows: run, generation, and the epoch and clock up to which the run read the log."""

    run: str
    generation: int
    epoch: int
    watermark: int
    processing_time: int

    def columns(self, kind: str) -> dict[str, str]:
        """Map each column that the backfill writes in all ledger rows of one kind to the column's SQL expression."""
        return {
            "kind": f"'{kind}'",
            "generation": f"{self.generation}L",
            "epoch": f"{self.epoch}L",
            "processing_time": f"TIMESTAMP_MICROS({self.processing_time}L)",
            "writer": "'backfill'",
        }


CORRECTIONS = (("old", "true", "change IN ('changed', 'gone')"), ("new", "false", "change IN ('changed', 'new')"))
"""The two kinds of rows that correct a difference: the retraction and the new row. Each kind has three values: the
prefix of the columns with the row's values, the value of the column `retraction`, and the condition under which the row
is written.
"""


def new_panes(pipeline: Pipeline, computed: Query, written: BackfillVersion) -> Query:
    """Return the query for the panes of computed answers, for windows that have no answers yet.

    `computed` has the columns of `ComparedRows.new`.
    """
    return _panes(pipeline, bracketed(computed), written, None, [("new", "false", "true")])


def pane_rows(pipeline: Pipeline, view: Relation, written: BackfillVersion, open_: Condition | None = None) -> Query:
    """Return the query for the ledger rows that correct differences between current and computed answers.

    The rows are retractions of the current answers, and panes with the computed answers.

    `view` has the columns of `ComparedRows.differences`, without the rows whose answer did not change. `open_` is the
    condition that later stages read a row (`stage_records.sent_with`); it is None if no window of the range is open in
    the stream.
    """
    return _panes(pipeline, view, written, open_, CORRECTIONS)


def _panes(
    pipeline: Pipeline,
    view: Relation,
    written: BackfillVersion,
    open_: Condition | None,
    corrections: Sequence[tuple[str, str, str]],
) -> Query:
    types = ledger_contract(pipeline).types
    common = written.columns(PANE) | instants(*SPAN) | {name: quoted(name) for name in pipeline.key}
    common |= {"pane_index": "0L", "timing": "'correction'", "watermark": f"TIMESTAMP_MICROS({written.watermark}L)"}
    if open_ is not None:
        common["reason"] = f"IF({open_}, '{OPEN}', NULL)"
    texts = []
    for which, retraction, holds in corrections:
        values = common | {"retraction": retraction}
        answer = {name: quoted(f"{which}_{name}") for name in pipeline.answer_columns}
        values |= answer
        if "answer" in types:
            values["answer"] = named_struct(answer)
            if which == "new":
                values["pending"] = part_columns.struct(pipeline, "part_")
        texts.append(f"SELECT {select_list(types, values)} FROM {view} WHERE {holds}")
    return Query(" UNION ALL ".join(texts))
