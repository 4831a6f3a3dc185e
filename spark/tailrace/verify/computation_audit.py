"""The audit of a computation, by counting: every record was taken or left out once, every timer fired once (X6).

Every record that was fed back came round once, in the next epoch, or is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.engines import log_records
from tailrace.engines.batch.run_engine import session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Head, Lake
from tailrace.lake.change.registry import claimant_of, shared
from tailrace.lake.commit.epoch_properties import CLOCK, ONWARD
from tailrace.lake.commit.pins import pinned
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.lake.schema.filters import EVERYTHING, equal
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.derived_logs import Productions
from tailrace.sql.epoch.key_state import OF_TIMER, latest_partials
from tailrace.sql.records.stage_records import claimed_ids
from tailrace.sql.terms import Query, Relation, quoted
from tailrace.verify.audit_checks import corrections_came, epochs_in_order, once_each
from tailrace.verify.tampering.audit_result import Audit, Check
from tailrace.verify.tampering.table_checks import with_tables


def audit_computation(lake: Lake, computation: Computation, *, deep: bool = False) -> Audit:
    """Audit a computation as of the last epoch in its ledger; `deep` reads the bytes of every file.

    Raises `OtherDefinitionError` where the tables are another definition's.
    """
    check_definition(lake, computation)

    def rows() -> Audit:
        table = ledger_name(computation.name)
        head = lake.head(table)
        reads = [(table, EVERYTHING)]
        with pinned(lake, {table: head.snapshot}), session_for(lake, computation, "audit", reads) as session:
            return _audited(session, computation, table, head)

    return with_tables(lake, computation, rows, deep=deep)


def _audited(session: Session, computation: Computation, table: str, head: Head) -> Audit:
    epoch, ledger = head.number("epoch"), session.table(table, snapshot=head.snapshot)
    kinds = {"productions": PRODUCTION, "late": LATE} | ({} if computation.once is None else {"claimed": CLAIMED})
    items = [f"COUNT_IF(kind = '{kind}') AS {name}" for name, kind in kinds.items()]
    of_records = f"kind = '{REJECTED}' AND NOT ({OF_TIMER})"
    items.append(f"COUNT_IF({of_records}{' AND returned = 0' if computation.loops else ''}) AS rejected")
    items.append(f"COUNT_IF(kind = '{REJECTED}' AND {OF_TIMER}) AS timers_failed")
    items += [f"CAST(COALESCE(SUM({name}), 0) AS bigint) AS {name}" for name in _COUNTS]
    if computation.loops:
        items += [f"{term} AS {name}" for name, term in _looped(epoch).items()]
    (row,) = session.rows(Query(f"SELECT {', '.join(items)} FROM {ledger}"))
    counts = {"epochs": epoch + 1, **row}
    waiting = "SIZE(waiting)" if computation.ordered else "0"
    sums = {"pending": "SIZE(timers)", "waiting": waiting}
    items = ["COUNT(*) AS keys", *(f"CAST(COALESCE(SUM({t}), 0) AS bigint) AS {name}" for name, t in sums.items())]
    keys = latest_partials(computation, ledger, epoch)
    counts |= session.rows(Query(f"SELECT {', '.join(items)} FROM ({keys})"))[0]
    epochs = epochs_in_order(session.lake, table, head.snapshot, (*CLOCK, ONWARD))
    checks = [*_checks(session, computation, ledger, counts, epoch), epochs]
    checks += corrections_came(session.lake, computation)
    return Audit(counts, tuple(checks), session.choice)


_COUNTS = ("taken", "timers_set", "timers_fired", "timers_dropped")


def _looped(epoch: int) -> dict[str, str]:
    """Write the counts of a loop as SQL terms over the ledger, by name."""
    return {
        "fed_back": f"COUNT_IF(kind = '{FEEDBACK}')",
        "in_flight": f"COUNT_IF(kind = '{FEEDBACK}' AND epoch = {epoch}L)",
        "returned": f"CAST(COALESCE(SUM(IF(kind = '{PARTIAL}', returned, 0)), 0) AS bigint)",
    }


def _checks(
    session: Session, computation: Computation, ledger: Relation, counts: dict[str, int], epoch: int
) -> Iterator[Check]:
    log = computation.log
    if isinstance(log, Productions) and not log.kept:
        detail = f"left out: what {log.name} produces is not kept"
        yield Check("every record was taken, waits, or was left out", True, detail)
    else:
        # A stream does not bring what backfills corrected since.
        records = counts["records"] = session.count(log_records.streamed(session, log, epoch))
        parts = [counts[name] for name in ("taken", "waiting", "late", "rejected")]
        detail = "{:,} records = {:,} taken + {:,} waiting + {:,} late + {:,} rejected".format(records, *parts)
        yield Check("every record was taken, waits, or was left out", records == sum(parts), detail)
    if computation.loops:
        parts = [counts[name] for name in ("fed_back", "returned", "in_flight")]
        detail = "{:,} records fed back = {:,} came round + {:,} in flight".format(*parts)
        yield Check("what is fed back comes round once", parts[0] == sum(parts[1:]), detail)
    known = [counts[name] for name in ("timers_set", "timers_fired", "timers_dropped", "pending")]
    detail = "{:,} timers set = {:,} fired + {:,} deleted or set anew + {:,} pending".format(*known)
    failed = counts["timers_failed"]
    detail += f"; {failed:,} of the fired were rejected" if failed else ""
    yield Check("every timer fires once", known[0] == sum(known[1:]) and failed <= known[1], detail)
    spans = {PARTIAL: [*map(quoted, computation.key), "epoch"]}
    spans |= {kind: [*SOURCE] for kind in (PRODUCTION, CLAIMED, FEEDBACK, LATE)}
    # A timer's place is counted in each epoch.
    spans[REJECTED] = [*SOURCE, f"IF({OF_TIMER}, epoch, NULL)"]
    yield once_each(session, ledger, spans)
    if computation.once is not None:
        yield _counted_once(session, computation, ledger)


def _counted_once(session: Session, computation: Computation, ledger: Relation) -> Check:
    """Check that each claimed record id is in the ledger once, and is the computation's own by the registry."""
    assert computation.once is not None
    registry, claimant = computation.once.registry, claimant_of(session.lake, computation)
    rows = session.table(registry, equal("claimant", claimant), of=shared(session.lake))
    own = f"SELECT id, event_time FROM {rows} WHERE claimant = '{claimant}'"
    ids = f"SELECT id, event_time, COUNT(*) AS times FROM ({claimed_ids(computation, ledger)}) GROUP BY id, event_time"
    text = f"SELECT COUNT(*) AS ids, COUNT_IF(times > 1) AS twice, COUNT_IF(own.id IS NULL) AS foreign FROM ({ids}) c"
    (row,) = session.rows(Query(f"{text} LEFT JOIN ({own}) own USING (id, event_time)"))
    detail = "{ids:,} counted, {twice:,} of them twice, {foreign:,} of them another's".format(**row)
    return Check("what counts once was claimed, and counted once", not row["twice"] + row["foreign"], detail)
