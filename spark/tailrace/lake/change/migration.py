"""Change live tables to match their contracts, while streams, backfills and readers continue to run.

All changes of a table are made in one commit of its metadata. If another process changed the table's columns or layout
since the table was loaded, the changes are planned again. The commit makes no snapshot and moves no branch, so a
writer's lease, branch and staged commits stay valid. The rows that a running writer adds afterwards have nulls in
columns that the writer does not know. Readers and writers that use a column's former name find the column by its id
(`schema.column_names`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

from pyiceberg.table import Table, Transaction
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    SetDefaultSortOrderUpdate,
    TableUpdate,
)
from pyiceberg.table.update.schema import UpdateSchema

from tailrace.lake.catalog.drift import (
    accumulator_contracts,
    check_definition,
    missing_columns,
    missing_outputs,
    narrow_columns,
    own_contracts,
)
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import holds
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.change.generations import generations_beside
from tailrace.lake.change.registry import registry_contracts, registry_lake
from tailrace.lake.schema.column_names import match_names
from tailrace.lake.schema.contract_diff import COLUMNS, ContractChange, Effect, Kind, contract_changes, match_columns
from tailrace.lake.schema.contract_files import apply_contract_file
from tailrace.lake.schema.contracts import PLACES, Contract, log_contract, places_text
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.lake_errors import FormerShapeError, MovedError
from tailrace.lake.schema.layouts import sort_order, term
from tailrace.lake.schema.owned_tables import all_contracts, tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log

T = TypeVar("T")

TRIES = 50
"""The maximum number of attempts to change a table while other commits to the table interfere."""


@dataclass(frozen=True)
class TablePlan:
    """The planned changes of one table. The table is in the lake `lake`, or will be created there.

    `made` states whether the table exists; a stream creates a missing table. `withheld` is the reason why the table's
    columns must not change at present, or an empty text if they may change.
    """

    lake: Lake
    contract: Contract
    made: bool
    changes: tuple[ContractChange, ...] = ()
    withheld: str = ""

    def of(self, *effects: Effect) -> list[ContractChange]:
        """Return the planned changes whose effect, such as safe or destructive, is among `effects`."""
        return [one for one in self.changes if one.effect in effects]


def placed_contracts(lake: Lake, definition: Definition) -> list[tuple[Lake, Contract]]:
    """Return the contracts of all tables of a definition and its inputs, each in a pair with the table's lake.

    The tables include registries, the tables of claimed ids; a registry may be in another namespace of the lake.

    Each contract is completed from its contract file. Raises `ContractError` for an invalid file.
    """
    made = ((lake, all_contracts(definition, lake.has)), (registry_lake(lake), registry_contracts(definition)))
    return [(place, apply_contract_file(one, lake.settings.contracts)) for place, of in made for one in of]


def plan_changes(lake: Lake, definition: Definition) -> list[TablePlan]:
    """Plan the changes that make the live tables of a definition and its inputs match their contracts.

    This function changes nothing.
    """
    return [
        _planned(place, contract, place.table(contract.table), _withheld(lake, definition, contract))
        if place.has(contract.table)
        else TablePlan(place, contract, False)
        for place, contract in placed_contracts(lake, definition)
    ]


def _planned(lake: Lake, contract: Contract, table: Table, withheld: str) -> TablePlan:
    found = contract_changes(contract, table)
    if withheld:
        layout = {Kind.PARTITION, Kind.UNPARTITION, Kind.SORT, Kind.DOCUMENT}
        found = [one for one in found if one.kind not in COLUMNS | layout]
    return TablePlan(lake, contract, True, tuple(found), withheld)


def _withheld(lake: Lake, definition: Definition, contract: Contract) -> str:
    """Return the reason why the columns of a ledger or of answers must not change now, or an empty text if the columns
    may change.

    The definition determines the columns of its ledger and answers. For all other tables, the returned text is empty.
    """
    owner = next((one for one in chain(definition) if contract.table in (one.name, ledger_name(one.name))), None)
    if owner is None:
        return ""
    if lake.has(ledger_name(owner.name)) and not holds(lake, owner):
        return "its columns are those of a definition with another meaning: see `tailrace plan`"
    if generations_beside(lake, owner.name):
        return "a generation is being built beside it, with its columns: wait until `tailrace apply` has ended"
    return ""


@dataclass(frozen=True)
class Evolution:
    """The result of changing one table of the lake `lake`: `done` has the changes that were made.

    `left` has the changes that were not made. `withheld` is the reason why the table's columns were not changed, or an
    empty text if they were allowed to change.
    """

    lake: Lake
    table: str
    done: tuple[ContractChange, ...]
    left: tuple[ContractChange, ...]
    withheld: str = ""


def evolve(lake: Lake, definition: Definition, *, destructive: bool = False) -> list[Evolution]:
    """Change a definition's live tables to match their contracts.

    Destructive changes are made only if `destructive` is set. Raises `MovedError` if other commits to a table make
    every attempt fail.
    """
    return [
        evolve_table(place, one, partial(_withheld, lake, definition, one), destructive=destructive)
        for place, one in placed_contracts(lake, definition)
        if place.has(one.table)
    ]


def evolve_table(
    lake: Lake, contract: Contract, withheld: Callable[[], str] = lambda: "", *, destructive: bool = False
) -> Evolution:
    """Change one live table to match its contract.

    Destructive changes are made only if `destructive` is set. `withheld` returns the reason why the table's columns
    must not change, or an empty text if they may change. Raises `MovedError` if other commits to the table make every
    attempt fail.
    """
    wanted = {Effect.SAFE, Effect.DESTRUCTIVE} if destructive else {Effect.SAFE}

    def attempt(table: Table) -> Evolution:
        found = _planned(lake, contract, table, withheld())
        left = [one for one in found.changes if one.effect not in wanted]
        doing = [one for one in found.changes if one not in left and not _hangs_on(one, left)]
        left += [one for one in found.changes if one not in left and one not in doing]
        if doing:
            commit(table, contract, doing)
        return Evolution(lake, contract.table, tuple(doing), tuple(left), found.withheld)

    return _until_unmoved(lake, contract.table, attempt)


def _until_unmoved(lake: Lake, name: str, attempt: Callable[[Table], T]) -> T:
    """Load a table and call `attempt` with the loaded table; repeat both steps if another commit interferes."""
    for _ in range(TRIES):
        with suppress(MovedError):
            return attempt(lake.table(name))
    raise MovedError(f"{name} is committed to so often that it could not be changed: try again")


def _hangs_on(change: ContractChange, left: Iterable[ContractChange]) -> bool:
    """Return True if a change cannot be made because it needs a column from a change in `left`, which is not made.

    The change in `left` would have added, renamed or retyped this column.
    """
    lacking = {one.path[0] for one in left if one.kind in (Kind.ADD, Kind.RENAME, Kind.RETYPE) and one.path}
    if change.kind is Kind.PARTITION:
        return term(change.path[0]).column in lacking
    if change.kind is Kind.SORT:
        return any(term(text).column in lacking for text in filter(None, change.after.split(", ")))
    return bool(change.path) and change.path[0] in lacking


def commit(table: Table, contract: Contract, doing: Sequence[ContractChange]) -> None:
    """Apply the changes `doing` to a loaded table in one commit.

    Raises `MovedError` if the table's columns or layout have changed since the table was loaded.
    """
    kinds = {change.kind for change in doing}
    retyped = [change.path for change in doing if change.kind is Kind.RETYPE]
    with open_transaction(table) as transaction:
        if kinds & (COLUMNS | {Kind.DOCUMENT}):
            # A retyped column is dropped and added again. The old column is dropped first, because the new column has
            # the same name.
            if retyped:
                with transaction.update_schema(allow_incompatible_changes=True) as update:
                    for path in retyped:
                        update.delete_column(path)
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                _columns(update, table, contract, doing)
        if kinds & {Kind.PARTITION, Kind.UNPARTITION}:
            with transaction.update_spec() as spec:
                for change in doing:
                    if change.kind is Kind.UNPARTITION:
                        spec.remove_field(change.path[0])
                for made in (term(change.path[0]) for change in doing if change.kind is Kind.PARTITION):
                    spec.add_field(made.column, made.transform, made.name)
        if Kind.SORT in kinds:
            _sorted(transaction, contract)
        if properties := {change.path[0]: change.after for change in doing if change.kind is Kind.SET}:
            transaction.set_properties(properties)
        for change in doing:
            if change.kind is Kind.UPGRADE:
                transaction.upgrade_table_version(2)


def _sorted(transaction: Transaction, contract: Contract) -> None:
    """Set a table's sort order to its contract's sort order.

    pyiceberg's own builder cannot restore a former sort order of the table, or remove the sort order. Therefore, this
    function adds the metadata changes to the transaction itself.
    """
    metadata = transaction.table_metadata
    order, there = sort_order(contract, metadata.schema()), metadata.sort_orders
    number = next((one.order_id for one in there if one.fields == order.fields), None)
    updates: tuple[TableUpdate, ...] = ()
    if number is None:
        number = max(one.order_id for one in there) + 1 if order.fields else UNSORTED_SORT_ORDER_ID
        updates = (AddSortOrderUpdate(sort_order=SortOrder(*order.fields, order_id=number)),)
    asserted = AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id)
    transaction._apply((*updates, SetDefaultSortOrderUpdate(sort_order_id=number)), (asserted,))


def _columns(update: UpdateSchema, table: Table, contract: Contract, doing: Sequence[ContractChange]) -> None:
    live, agreed = match_columns(contract, table.schema()), iceberg_schema(contract)
    for change in doing:
        # The path uses the column's present name in the table, because a rename takes effect only with the commit.
        path = (live[change.path[0]].name, *change.path[1:]) if change.path and change.path[0] in live else change.path
        match change.kind:
            case Kind.ADD | Kind.RETYPE:
                field = agreed.find_field(change.name)
                path = change.path if change.kind is Kind.RETYPE else path
                update.add_column(path, field.field_type, field.doc, required=field.required)
            case Kind.WIDEN:
                update.update_column(path, agreed.find_type(change.name))
            case Kind.RENAME:
                update.rename_column(path, change.after)
            case Kind.DROP:
                update.delete_column(path)
            case Kind.REQUIRE | Kind.LOOSEN:
                update.update_column(path, required=change.kind is Kind.REQUIRE)
            case Kind.DOCUMENT:
                update.update_column(path, doc=change.after)
            case _:
                pass
    whole = [one for one in doing if len(one.path) == 1]
    fresh = [one.path[0] for one in whole if one.kind in (Kind.ADD, Kind.RETYPE)]
    gone = {one.path[0] for one in whole if one.kind in (Kind.DROP, Kind.RETYPE)}
    there = [field.name for field in table.schema().fields if field.name not in gone] + fresh
    names = [live[name].name if name in live and name not in fresh else name for name in contract.columns]
    _ordered(update, there, names)


def _ordered(update: UpdateSchema, there: Sequence[str], agreed: Sequence[str]) -> None:
    """Put the columns into the contract's order; columns that are not in the contract come last."""
    wanted = [name for name in agreed if name in there]
    wanted += [name for name in there if name not in wanted]
    if wanted == list(there):
        return
    update.move_first(wanted[0])
    for before, name in pairwise(wanted):
        update.move_after(name, before)


def widen(lake: Lake, definition: Definition) -> None:
    """Add the accumulator columns (columns with partial results) that a definition's tables lack, and widen columns.

    Tables that an earlier version of Tailrace created may lack such columns, and so may the tables of a definition
    whose log has wider types than before. Existing columns are kept, and get the wider types that the definition says.
    A total continues to use its existing column as long as its values fit into this column (rule X7). Raises
    `OtherDefinitionError` if the tables were written by a definition that computes something else; such tables are not
    changed. Raises `MovedError` if other commits to a table make every attempt fail.
    """
    for stage in chain(definition):
        if holds(lake, stage):
            held = accumulator_contracts(lake, stage)
            for contract in own_contracts(lake, stage):
                _widen(lake, contract, accumulators=contract in held)
            _add_outputs(lake, stage)
    check_definition(lake, definition)


def fit_log(lake: Lake, log: Log) -> None:
    """Check that a log's table, if it exists, has all columns that the log declares.

    If the log has the option `grows`, missing columns are added, and types are widened. Raises `FormerShapeError` if
    columns are still missing. The table's property with the places of columns gets the places from which the stream
    takes them.
    """
    if not lake.has(log.name):
        return
    contract = apply_contract_file(log_contract(log), lake.settings.contracts)
    wanted = {Kind.ADD, Kind.WIDEN}

    def attempt(table: Table) -> list[ContractChange]:
        lacking = [one for one in contract_changes(contract, table) if one.kind in wanted | {Kind.RENAME}]
        # The table may have a column under another name, which the column got after the definition was written.
        live = match_names(table, contract.columns, table.schema().column_names)
        lacking = [one for one in lacking if one.kind is not Kind.ADD or len(one.path) > 1 or not live[one.name]]
        doing = [one for one in lacking if one.kind in wanted and one.effect is Effect.SAFE and log.grows]
        if doing:
            commit(table, contract, doing)
        return [one for one in lacking if one not in doing]

    if lacking := _until_unmoved(lake, log.name, attempt):
        raise FormerShapeError(
            f"the table of log {log.name} is not as the log declares it ({'; '.join(map(str, lacking))}): run "
            "`tailrace tables apply`, or declare grows=True in the log, and the stream adds columns itself"
        )

    def place(table: Table) -> None:
        if table.properties.get(PLACES) != places_text(log):
            with open_transaction(table) as transaction:
                transaction.set_properties({PLACES: places_text(log)})

    _until_unmoved(lake, log.name, place)


def _add_outputs(lake: Lake, definition: Definition) -> None:
    own = tables_of(definition).ledger

    def attempt(table: Table) -> None:
        if missing := missing_outputs(lake, definition):
            commit(table, own, missing)

    if missing_outputs(lake, definition):
        _until_unmoved(lake, own.table, attempt)


def _widen(lake: Lake, contract: Contract, *, accumulators: bool) -> None:
    def attempt(table: Table) -> None:
        missing = missing_columns(contract, table) if accumulators else []
        if doing := [*missing, *narrow_columns(contract, table)]:
            commit(table, contract, doing)

    _until_unmoved(lake, contract.table, attempt)
