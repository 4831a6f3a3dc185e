"""Declare all tables that belong to a definition: its own tables, its logs, its earlier stages, and commit archives."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from tailrace.lake.schema.computation_tables import computation_tables
from tailrace.lake.schema.contracts import (
    Contract,
    DefinitionTables,
    declared_columns,
    log_contract,
    rejected_contract,
)
from tailrace.lake.schema.join_tables import join_tables
from tailrace.lake.schema.map_tables import map_tables
from tailrace.lake.schema.pipeline_tables import pipeline_tables
from tailrace.lake.schema.table_names import LEDGER, complete_name, ledger_name, rejected_name, signals_name
from tailrace.model.definition.chain import chain, keeping_answers
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log


@singledispatch
def tables_of(definition: Definition) -> DefinitionTables:
    """Declare the tables of a definition of any kind, except the tables of the definition's logs."""
    raise KindError("declaration of tables", definition)


tables_of.register(Pipeline, pipeline_tables)
tables_of.register(Map, map_tables)
tables_of.register(Join, join_tables)
tables_of.register(Computation, computation_tables)


def contracts(definition: Definition) -> list[Contract]:
    """Declare all tables of a definition, including the tables of the logs that the definition reads from sources.

    The output of another definition is also a log, but the tables of such a log are not included.
    """
    logs, own = [log for log in definition.log.parts if log.landed], tables_of(definition)
    landed = [contract(log) for log in logs for contract in (log_contract, rejected_contract)]
    signals = map(signals_contract, definition.sources) if own.signals else ()
    complete = [complete_contract(log) for log in logs if not log.strategy.follows_records]
    made = (own.ledger, own.answers, own.runs)
    return [*landed, *signals, *complete, *(one for one in made if one is not None)]


def signals_contract(log: Log) -> Contract:
    """Declare the append-only table of a log's external signals.

    Triggers of the pipelines that read the log can wait for a signal.
    """
    return Contract(signals_name(log.name), f"signals to the pipelines of log {log.name}", declared_columns("signals"))


def complete_contract(log: Log) -> Contract:
    """Declare the append-only table that states up to which instant a log's input is complete.

    Users or programs append rows to this table, and the watermark advances accordingly (T3).
    """
    doc = f"until when the input of log {log.name} is complete"
    return Contract(complete_name(log.name), doc, declared_columns("complete"))


def commits_contract(table: str) -> Contract:
    """Declare the append-only archive of the expired commits of a log or a ledger."""
    doc = f"what the commits of {table} said whose snapshots expired"
    columns = declared_columns("commits")
    return Contract(f"{table.removesuffix(LEDGER)}__commits", doc, columns, key=("snapshot",))


def archives(definition: Definition) -> list[Contract]:
    """Declare the archives in which maintenance stores the expired commits of a definition's ledger and logs."""
    logs = [log.name for log in definition.log.parts if log.landed]
    landed = [table for log in logs for table in (log, rejected_name(log))]
    return [commits_contract(table) for table in (*landed, ledger_name(definition.name))]


def all_contracts(definition: Definition, there: Callable[[str], bool] = lambda table: False) -> list[Contract]:
    """Declare the tables of a definition and of all its inputs, with the tables' archives; each table is declared once.

    A table of answers of an earlier stage is included only if the definition requests it, or if `there` returns True
    for the table's name.
    """
    made: dict[str, Contract] = {}
    wanted = keeping_answers([definition])
    for stage in chain(definition):
        for contract in (*contracts(stage), *archives(stage)):
            # A table of answers has the same name as its stage, so only contracts with the stage's name are checked.
            if contract.table != stage.name or contract.table in wanted or there(contract.table):
                made.setdefault(contract.table, contract)
    return list(made.values())
