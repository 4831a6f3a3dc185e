"""Audit that every record is accounted for, and that the answers equal a batch computation's answers (X6, L1, L2).

The audit runs on either engine; it counts and compares the rows of the tables. The audit assigns windows and combines
values with the same code as the stream, but uses none of the stream's code for triggers, state or commits. Each kind of
definition has a separate audit, with checks for its kinds of rows (`audit_of`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, singledispatch
from typing import Any

from tailrace.engines import log_records
from tailrace.engines.batch.run_engine import run_with_fallback, session_for
from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.verify.audit_checks import RowsAudit
from tailrace.verify.computation_audit import ComputationAudit
from tailrace.verify.join_audit import JoinAudit
from tailrace.verify.map_audit import MapAudit
from tailrace.verify.pipeline_audit import PipelineAudit
from tailrace.verify.tampering.audit_result import Audit, Check
from tailrace.verify.tampering.table_checks import answers_of, files_check, table_checks


@singledispatch
def audit_of(definition: object, session: Session, head: Head) -> RowsAudit[Any]:
    """Create the audit of a definition, according to its kind; `head` is the last commit of the ledger to audit."""
    raise KindError("audit", definition)


audit_of.register(Pipeline, PipelineAudit)
audit_of.register(Map, MapAudit)
audit_of.register(Join, JoinAudit)
audit_of.register(Computation, ComputationAudit)


def audit(lake: Lake, definition: Definition, *, deep: bool = False) -> Audit:
    """Audit a definition and its logs up to the last epoch in the ledger; `deep` reads the bytes of every file.

    Before a pipeline's rows are compared, its answers are brought up to date with the ledger. If a file is missing or
    damaged, the rows are not audited, because some rows could not be read. Raises `OtherDefinitionError` if the tables
    belong to a definition that computes something else.
    """
    check_definition(lake, definition)
    files = files_check(lake, definition, deep=deep)
    if not files.ok:
        left_out = Check("the rows add up", False, "left out: not all files can be read")
        return Audit({}, (files, left_out), EngineChoice(Engine.DUCKDB, "nothing was read"))
    audited = run_with_fallback(lake, partial(_of_rows, definition=with_set_aside(lake, definition)))
    return replace(audited, checks=(*audited.checks, *table_checks(lake, definition), files))


def _of_rows(lake: Lake, definition: Definition) -> Audit:
    ledger = ledger_name(definition.name)
    tables = {ledger, *answers_of(lake, definition)}
    epoch = lake.head(ledger).number("epoch")
    reads = [
        *log_records.tables_of_log(lake, definition.stages[0].log, epoch),
        *((table, EVERYTHING) for table in tables),
    ]
    with session_for(lake, definition, "audit", reads) as session:
        head = lake.head(ledger)
        with pin_snapshots(lake, {ledger: head.snapshot}):
            return audit_of(definition, session, head).run()
