"""The function that both engines call to look into JSON texts, so that all executions read a text in the same way."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.base.json_places import text_inside


def texts_inside(texts: pa.Array, places: pa.Array, types: pa.Array) -> pa.Array:
    """Return the texts of the values at a place of JSON texts (`text_inside`); each different text is read once.

    The place and the type are the same in all rows, because they are constants of the query.

    >>> texts_inside(pa.array(['{"a": 1}', None, "{"]), pa.array(["a"] * 3), pa.array(["bigint"] * 3)).to_pylist()
    ['1', None, None]
    """
    if not len(texts):
        return pa.nulls(0, pa.string())
    place, type = places[0].as_py(), types[0].as_py()
    coded = texts.dictionary_encode()
    made = pa.array([text_inside(one, place, type) for one in coded.dictionary.to_pylist()], pa.string())
    return pc.take(made, coded.indices)
