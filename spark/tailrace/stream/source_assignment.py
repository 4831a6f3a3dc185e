"""Assign sources to the logs that definitions read."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.fold.fold_group import StreamError
from tailrace.ingest.sources import Source
from tailrace.model.logs.log import Log


def sources_of(logs: Mapping[str, Log], given: Source | Mapping[str, Source]) -> dict[str, Source]:
    """Assign its source to each log. Raises `StreamError` where a log has none, or a source no log."""
    if not isinstance(given, Mapping):
        if len(logs) > 1:
            names = ", ".join(logs)
            raise StreamError(f"the definitions read {len(logs)} logs, {names}: name the log of each source")
        return dict.fromkeys(logs, given)
    faults = [f"log {name} has no source" for name in logs if name not in given]
    faults += [
        f"no definition reads log {name}, which {source} is for" for name, source in given.items() if name not in logs
    ]
    places = [str(source) for source in given.values()]
    faults += [f"{place} is given for two logs" for place in sorted({one for one in places if places.count(one) > 1})]
    if faults:
        raise StreamError("; ".join(faults))
    return {name: given[name] for name in logs}
