"""Records of JSON files without lines: those of an array, and of objects one after another, however the file is cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.ingest.json_values import ValueSplitter, has_values

NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\{}[],é\n', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"}\\', max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.sampled_from(["a", "}", '"']), NESTED, max_size=2), max_size=6)


def split(text: bytes, cuts: list[int], most: int = 10_000) -> list[bytes]:
    splitter, found, at = ValueSplitter(most), list[bytes](), 0
    for cut in [*sorted(cuts), len(text)]:
        found += splitter.split(text[at:cut]).to_pylist()
        at = max(at, cut)
    found += splitter.split(b"", last=True).to_pylist()
    return found


def laid_out(objects: list[Any], way: int) -> bytes:
    indent = [None, 0, 2, "\t"][way % 4]
    if way < 4:
        return json.dumps(objects, indent=indent, ensure_ascii=way % 2 == 0).encode()
    return ["", "\n", " \r\n"][way % 3].join(json.dumps(one, indent=indent) for one in objects).encode()


@given(
    OBJECTS,
    st.integers(0, 11),
    st.lists(st.integers(0, 300), max_size=6),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\n "]),
)
def test_X6_every_object_is_found_however_it_is_laid_out_and_cut(
    objects: list[Any], way: int, cuts: list[int], begins: bytes
) -> None:
    text = begins + laid_out(objects, way)
    assert [json.loads(one) for one in split(text, [min(cut, len(text)) for cut in cuts])] == objects


@given(st.text(alphabet='{}[],:"\\ a\n', max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_X6_no_byte_of_any_text_is_lost_and_its_cut_does_not_matter(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    found = split(raw, [min(cut, len(raw)) for cut in cuts])
    assert found == split(raw, [])
    rest, between = raw.lstrip().removeprefix(b"["), set(b" \t\r\n,]")
    for one in found:
        before, _, rest = rest.partition(one)
        assert set(before) <= between
    assert set(rest) <= between


def test_X7_a_damaged_tail_costs_itself() -> None:
    whole = json.dumps([{"a": n} for n in range(50)]).encode()
    for cut in range(len(whole)):
        found = split(whole[:cut], [])
        good = [one for one in found if one.endswith(b"}")]
        assert len(found) - len(good) <= 1
        assert good == [json.dumps({"a": n}).encode() for n in range(len(good))]
    text = b'[{"a": 1}, {"b": ' + b'"x", "c": ' * 100 + b'1}, 7, {"d": 1}, nothing]'
    for cuts in ([], [20, 40, 90], list(range(0, len(text), 7))):
        assert split(text, cuts, most=50) == [b'{"a": 1}', text[11:62], b"7", b'{"d": 1}', b"nothing"]


LAYOUTS = {
    b'{"a": 1}\n{"a": 2}\n': False,
    b'{"a": 1}': False,
    b"": False,
    b"\n\n": False,
    b'{"a": \n{"b": 1}\n{"c": 1}\n': False,
    b'{"a": "x\n{"b": "y"}\n': False,
    b'{"a": 1} and more\n{"a": 1}\n': False,
    b'{"a" 1} {"b": 1}\n': False,
    b"nothing\n[1]": False,
    b'{"a": 1}{"b": 1}\n': True,
    b'{"a": 1} {"b": 1}': True,
    b'\xef\xbb\xbf\n{\n "a": 1}\n': True,
    b"{\n}": True,
    b' [{"a": 1}]': True,
    b"[": True,
}


def test_the_beginning_of_a_text_shows_whether_it_has_lines() -> None:
    for text, expected in LAYOUTS.items():
        for size in (1, 3, 1000):
            parts = iter([text[at : at + size] for at in range(0, len(text), size)] + [b""])
            found, head = has_values(lambda parts=parts: next(parts), 1000)  # type: ignore[misc]
            assert found is expected, text
            assert text.startswith(head)
