"""Define the checks that the audits of all kinds of definitions share; the checks count all rows and do not sample.

The checks cover the log, the epochs and the rejected records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Generic, TypeVar

import pyarrow as pa

from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Head
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import MAINTAINED
from tailrace.lake.change.generations import built_until
from tailrace.lake.commit.archive import commits
from tailrace.lake.commit.epoch_properties import CLOCK, processing_times
from tailrace.lake.commit.lease import LENDER, TOKEN
from tailrace.lake.commit.runs_table import committed_backfills
from tailrace.lake.corrections.stages_behind import stages_behind
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.filters import at_most
from tailrace.lake.schema.table_names import ledger_name, rejected_name
from tailrace.model.base.time import duration, length, text
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import Log
from tailrace.sql.epoch.map_rows import PLACE
from tailrace.sql.results.compared_rows import counted_rows
from tailrace.sql.terms import Query, Relation, all_of, bracketed, quoted
from tailrace.verify.tampering.audit_result import SHOWN, Audit, Check

D = TypeVar("D", bound=Definition)


class RowsAudit(ABC, Generic[D]):
    """The base class of audits; an audit checks the rows of a definition's ledger up to the commit `head`.

    `log` is a relation of the log's records up to the epoch of the commit `head`, and `rows` is a relation of the
    ledger's rows.
    """

    of = "windows"
    log: Relation

    def __init__(self, definition: D, session: Session, head: Head) -> None:
        self.session, self.lake, self.definition, self.head = session, session.lake, definition, head
        self.ledger = ledger_name(definition.name)
        self.epoch, self.watermark = head.number("epoch"), head.number("watermark")
        self.rows = session.table(self.ledger, snapshot=head.snapshot)
        self.built_until = built_until(self.lake.table(self.ledger))

    def run(self) -> Audit:
        """Count the rows, run the checks, and return the result of the audit."""
        counts = self.counts()
        checks = [*self.checks(counts), *self._corrections_check()]
        return Audit(counts, tuple(checks), self.session.choice)

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the numbers of the log's records and of the definition's rows."""

    @abstractmethod
    def checks(self, counts: dict[str, int]) -> Iterable[Check]:
        """Run the checks for this kind of definition; a check may add further counts to `counts`."""

    def landing_checks(self, counts: Mapping[str, int]) -> Iterator[Check]:
        """Check that each epoch was landed once and completely: a log has as many records as its commits have added.

        Records that come from other definitions are not checked, because no epoch landed them.
        """
        parts = self.definition.stages[0].log.parts
        for log in (part for part in parts if part.landed):
            rows = self.log if len(parts) == 1 else log_records.rows_of_log(self.session, log, self.epoch)
            yield from self._landing_checks(log, rows, counts if len(parts) == 1 else None)

    def _landing_checks(self, log: Log, rows: Relation, counts: Mapping[str, int] | None) -> Iterator[Check]:
        if counts is None:
            rejected = self._rejected_of(log)
            counts = {"records": self.session.count(rows), "rejected": self.session.count(rejected)}
        for name, kind in ((log.name, "records"), (rejected_name(log.name), "rejected")):
            added, whole = self._added(name)
            count = counts[kind]
            detail = f"{count:,} {kind} in {name}, its commits say {added:,}"
            detail += "" if whole else "; not compared, as another has expired commits of it"
            yield Check(f"{kind} are those that were landed", count == added or not whole, detail)
        place = ", ".join(log_contract(log).key)
        by_place = Query(f"SELECT 1 FROM {rows} GROUP BY {place} HAVING COUNT(*) > 1")
        by_file = Query(
            f"SELECT _source FROM {rows} WHERE _source LIKE '%:/%' GROUP BY _source HAVING COUNT(DISTINCT _epoch) > 1"
        )
        doubled, again = (self.session.count(bracketed(query)) for query in (by_place, by_file))
        yield Check(
            "no record was landed twice",
            doubled == again == 0,
            f"{doubled:,} places of the source with two records, {again:,} files landed in two epochs",
        )
        if log.id_columns:
            yield self._again(log, rows)

    def count_rows(self, relations: Mapping[str, str]) -> dict[str, int]:
        """Count the rows of each relation with one query for all relations.

        The result also has the number of epochs.
        """
        relations = {"records": self.log, "rejected": self.rejected_by_sources(), **relations}
        items = ", ".join(f"(SELECT COUNT(*) FROM {relation}) AS {name}" for name, relation in relations.items())
        (counts,) = self.session.rows(Query(f"SELECT {items}"))
        return {"epochs": self.epoch + 1, **counts}

    def committed_runs(self, stage: Definition | None = None) -> list[Run]:
        """List the committed backfills of the definition, or of one of its stages."""
        return committed_backfills(self.lake, (stage or self.definition).name)

    def rejected_by_sources(self) -> Relation:
        """Return a parenthesized query for the records that were rejected when they were read into their logs."""
        each = (f"SELECT _epoch FROM {self._rejected_of(log)}" for log in self.definition.sources)
        return Relation(f"({' UNION ALL '.join(each)})")

    def _rejected_of(self, log: Log) -> Relation:
        rows = self.session.table(rejected_name(log.name), at_most("_epoch", self.epoch))
        return Relation(f"(SELECT * FROM {rows} WHERE _epoch <= {self.epoch}L)")

    def _again(self, log: Log, rows: Relation) -> Check:
        """Check that no record id was landed twice within the horizon, the time for which the log remembers ids (X5).

        Only epochs with a known processing time are checked.
        """
        times = processing_times(self.lake, log.name)
        ids = ", ".join(quoted(name) for name in log.id_columns)
        before = f"LAG(_landed_at) OVER (PARTITION BY {ids} ORDER BY _landed_at, _epoch)"
        landed = {"_landed": [*times], "_landed_at": [*times.values()]}
        types = pa.schema([pa.field(name, pa.int64()) for name in landed])
        known = self.session.relation_of(pa.table(landed, schema=types))
        gaps = f"SELECT _landed_at - {before} AS gap FROM {rows} JOIN {known} ON _epoch = _landed"
        horizon = duration(log.remembered)
        (row,) = self.session.rows(Query(f"SELECT COUNT(*) AS n, COUNT_IF(gap <= {horizon}L) AS again FROM ({gaps})"))
        records, again = row["n"], row["again"]
        detail = f"{again:,} of {records:,} records had come within {length(horizon)} before"
        return Check("no record came again within the horizon", again == 0, detail)

    def _added(self, table: str) -> tuple[int, bool]:
        """Return the number of records that a table's commits added, from the first epoch through the audited epoch.

        The second item of the returned pair is True if all commits of the table are known.
        """
        history = commits(self.lake, table)
        # A commit that Tailrace did not make has no epoch among its properties, and is not counted.
        own = (commit for commit in history.all if "epoch" in commit.properties)
        return sum(one.added for one in own if int(one.properties["epoch"]) <= self.epoch), history.whole

    def rejected_check(
        self, rejected: Relation, again: Query, on: Mapping[str, str] = MappingProxyType(PLACE)
    ) -> Check:
        """Check that the ledger has exactly the rejected records that the definition rejects, each once (X6).

        `rejected` is a relation of the ledger's rows for rejected records, and `again` is a query for the log's records
        that the definition rejects. `on` maps the columns of `rejected` that identify a record to the corresponding
        columns of `again`.
        """
        both = in_common(self.session, rejected, bracketed(again), on)
        held, failed = self.session.count(rejected), self.session.count(bracketed(again))
        detail = f"{held:,} in the ledger, {failed:,} records of the log that are rejected, {both:,} of them the same"
        return Check("rejected records are in the ledger", both == held == failed, detail)

    def differences_check(self, name: str, text_: Query) -> Check:
        """Check that the rows in the tables equal the computed rows.

        `text_` is a query of `ComparedRows.differences`, which compares these rows. They are equal if the column
        `change` is `same` in every row of the query's result.
        """
        counts = self.session.rows(Query(f"SELECT change, COUNT(*) AS n FROM ({text_}) GROUP BY change"))
        by = {row["change"]: row["n"] for row in counts}
        same = by.pop("same", 0)
        if not by:
            return Check(name, True, f"{same:,} {self.of}, no difference")
        words = {"new": "missing", "gone": "not in the batch answer", "changed": "different"}
        changes = ", ".join(f"{count:,} {words[change]}" for change, count in sorted(by.items()))
        rows = self.session.rows(Query(f"SELECT * FROM ({text_}) WHERE change <> 'same' LIMIT {SHOWN}"))
        quotes = "; ".join(str({n: v for n, v in row.items() if not n.startswith("part_")}) for row in rows)
        return Check(name, False, f"{same:,} {self.of} the same, {changes}: {quotes}")

    def same_rows_check(self, name: str, columns: Sequence[str], expected: Relation, held: Relation) -> Check:
        """Check that two relations have the same rows in the given columns, each row equally often."""
        found = self.session.materialized(counted_rows(all_of(expected), all_of(held), columns))
        total = {"same": "LEAST(_ours, _theirs)", "missing": "GREATEST(_ours - _theirs, 0)",
                 "more": "GREATEST(_theirs - _ours, 0)"}  # fmt: skip
        items = ", ".join(f"CAST(COALESCE(SUM({term}), 0) AS bigint) AS {kind}" for kind, term in total.items())
        (row,) = self.session.rows(Query(f"SELECT {items} FROM {found}"))
        same, missing, more = row["same"], row["missing"], row["more"]
        if not missing + more:
            return Check(name, True, f"{same:,} {self.of}, no difference")
        wrong = self.session.readable_rows(Query(f"SELECT * FROM {found} WHERE _ours <> _theirs LIMIT {SHOWN}"))
        quotes = "; ".join(str(one) for one in wrong)
        detail = f"{same:,} {self.of} the same, {missing:,} missing, {more:,} too many or different: {quotes}"
        return Check(name, False, detail)

    def _corrections_check(self) -> Iterator[Check]:
        """Check that a definition has received all corrections by backfills of the definitions that it reads (V4).

        For a definition that reads only logs of sources, the method yields no check. If a correction is missing but no
        backfill can make the correction yet, the check passes, and the check's details mention the correction.
        """
        if not self.definition.before:
            return
        behind = [one for one in stages_behind(self.lake, self.definition) if one.stage.name == self.definition.name]
        detail = "; ".join(one.said for one in behind) or "what backfills corrected of what it reads is in it"
        yield Check("corrections reached it", not any(one.ready for one in behind), detail)

    def order_check(self, clocks: tuple[str, ...] = CLOCK) -> Check:
        """Check that the ledger has each epoch once, in order, and that its clocks never go back (T3, X2).

        `clocks` names the commit properties that must not decrease from one commit to the next.
        """
        # The commits of backfills, the commits that lend the lease to a backfill, and the commits of maintenance all
        # repeat an earlier epoch. They are left out of this check.
        apart = {"run", LENDER, MAINTAINED}
        properties = (one.properties for one in commits(self.lake, self.ledger, self.head.snapshot).all)
        heads = [Head(None, each) for each in properties if "watermark" in each and not apart & each.keys()]
        faults = list[str]()
        for before, now in pairwise(heads):
            epoch, step = now.number("epoch"), now.number("epoch") - before.number("epoch")
            # A commit by which a writer takes the lease repeats the epoch of the previous commit, which is not a fault.
            taken = now.number(TOKEN) > before.number(TOKEN) and step == 0
            if step != 1 and not taken:
                faults.append(f"epoch {epoch} after {before.number('epoch')}")
            faults += [
                f"the {name} went back in epoch {epoch}" for name in clocks if now.number(name) < before.number(name)
            ]
        count = len({one.number("epoch") for one in heads})
        until = f", the watermark is at {text(heads[-1].number('watermark'))}" if heads else ""
        detail = "; ".join(faults[:SHOWN]) or f"{count:,} epochs{until}"
        return Check("epochs follow each other, and their clocks", not faults, detail)

    def once_check(self, kinds: Mapping[str, Sequence[str]]) -> Check:
        """Check that no row occurs twice in the ledger.

        `kinds` maps each kind of row to the columns that identify a row.
        """
        twice = {}
        for kind, by in kinds.items():
            of = f"FROM {self.rows} WHERE kind = '{kind}' GROUP BY {', '.join(by)} HAVING COUNT(*) > 1"
            twice[kind] = self.session.count(bracketed(Query(f"SELECT 1 {of}")))
        doubled = ", ".join(f"{count:,} {kind}" for kind, count in twice.items() if count)
        return Check("nothing is in the ledger twice", not doubled, doubled or ", ".join(twice) + ": each row once")


def in_common(session: Session, rows: Relation, others: Relation, on: Mapping[str, str]) -> int:
    """Count the rows that two relations have in common; `on` maps columns of `rows` to columns of `others`.

    If equal rows occur equally often in both relations, all these rows are counted. If equal rows occur more often in
    one relation than in the other, none of these rows is counted.
    """
    renamed = ", ".join(f"{theirs} AS {ours}" for ours, theirs in on.items())
    counted = counted_rows(all_of(rows), Query(f"SELECT {renamed} FROM {others}"), on)
    total = "CAST(COALESCE(SUM(IF(_ours = _theirs, _ours, 0)), 0) AS bigint) AS n"
    (row,) = session.rows(Query(f"SELECT {total} FROM ({counted})"))
    return int(row["n"])
