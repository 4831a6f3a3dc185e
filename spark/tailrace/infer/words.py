"""The words in the names of fields by which the meaning of fields is guessed (`words.toml`)."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

_LISTS = {
    name: tuple(words.split())
    for name, words in tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text()).items()
}

MONEY, TIMES, ARRIVALS, LATER = (frozenset(_LISTS[name]) for name in ("money", "times", "arrivals", "later"))
AMOUNTS, NO_AMOUNTS = MONEY | frozenset(_LISTS["amounts"]), frozenset(_LISTS["no_amounts"])
EVENT_TIMES, IDS, GROUPS = _LISTS["event_times"], _LISTS["ids"], _LISTS["groups"]


def snake(name: str) -> str:
    """Return a column's name for a field's name.

    >>> snake("orderId"), snake("HTTPStatus"), snake("unit-price"), snake("2nd"), snake("Größe")
    ('order_id', 'http_status', 'unit_price', 'field_2nd', 'gr_e')
    """
    if _COLUMN.fullmatch(name):
        return name
    apart = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name))
    made = re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")
    if not made or not made[0].isalpha():
        made = f"field_{made}".rstrip("_")
    return made[:60]


def words(name: str) -> set[str]:
    """Return the words of a field's name.

    >>> sorted(words("createdAt"))
    ['at', 'created']
    """
    return set(snake(name).split("_"))


_COLUMN = re.compile("[a-z][a-z0-9_]{0,59}")
