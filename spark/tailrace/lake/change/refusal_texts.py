"""Read the texts that state why a change of the lake is refused from `refusals.toml`."""

from __future__ import annotations

import tomllib
from importlib.resources import files

_TEXTS: dict[str, str] = tomllib.loads(files(__package__).joinpath("refusals.toml").read_text("utf-8"))


def refusal_text(name: str, **values: object) -> str:
    """Return a text of `refusals.toml`, with these values for its placeholders.

    >>> refusal_text("no-lake", folder="/srv/lake")
    'there is no lake in /srv/lake: set TAILRACE_WAREHOUSE to the folder that it is in now'
    """
    return _TEXTS[name].format(**values)
