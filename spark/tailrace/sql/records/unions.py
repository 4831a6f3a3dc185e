"""The SQL that selects the union of several logs: the records of all these logs (`model.logs.derived_logs.Union`)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.logs.derived_logs import Union
from tailrace.model.logs.log import PANE_TIME, PLACE, SIGN
from tailrace.sql.terms import Query, Relation, quoted


def union_records(union: Union, members: Mapping[str, Relation]) -> Query:
    """Return the query for a union's records.

    `members` maps the name that each log has in the union to a relation of the log's records.
    """
    return Query(" UNION ALL ".join(_member(union, name, rows) for name, rows in members.items()))


def _member(union: Union, member: str, rows: Relation) -> str:
    log = union.members[member]
    values = {name: quoted(column) for name, column in union.columns_of(member).items()} | {
        union.tag: f"'{member}'",
        PANE_TIME: quoted(log.event_time),
    }
    place = [*PLACE, *([f"{SIGN if log.takes_back else '1'} AS {SIGN}"] if union.takes_back else [])]
    items = [f"CAST({values.get(name, 'NULL')} AS {type}) AS {quoted(name)}" for name, type in union.columns.items()]
    return f"SELECT {', '.join([*items, *place])} FROM {rows}"
