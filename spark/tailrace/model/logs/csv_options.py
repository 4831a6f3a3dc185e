"""The options of CSV files: how a line is divided into values, and how a missing value is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.model.base.errors import Fault, raise_faults

_ASCII = "".join(map(chr, (9, 10, 13, *range(32, 127))))


@dataclass(frozen=True, kw_only=True)
class Csv:
    r"""The options of a log's CSV files. A record is one line; by default, a line is divided as in RFC 4180.

    `delimiter` separates the values. A value may be enclosed in `quote`, and a quote inside such a value is doubled. If
    `escape` is given, the character after it is taken as it is. With `quote=None`, no value is enclosed. `null` is the
    text of a missing value, or a tuple of such texts. `encoding` is the name of a codec of Python, in which ASCII
    characters must be single bytes, as they are in `cp1252`. Without `header`, a file has no line with the names of its
    columns: the columns are then in the order in which the log declares them.

    >>> Csv(delimiter=";", null=("", "NULL"), encoding="cp1252").nulls
    ('', 'NULL')
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null: str | tuple[str, ...] = ""
    encoding: str = "utf-8"
    header: bool = True

    def __post_init__(self) -> None:
        raise_faults("csv", self._faults())

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts of a missing value."""
        return (self.null,) if isinstance(self.null, str) else self.null

    @property
    def doubles_quotes(self) -> bool:
        """Whether a quote inside an enclosed value is doubled, and no character is escaped otherwise."""
        return self.escape is None or self.escape == self.quote

    def _faults(self) -> Iterator[Fault]:
        for name, mend in (("delimiter", '";" or "\\t"'), ("quote", '"\'" or None'), ("escape", '"\\\\"')):
            value: object = getattr(self, name)
            if value is None and name != "delimiter":
                continue
            if not isinstance(value, str) or len(value) != 1 or value in "\r\n\ufeff":
                yield Fault(f"csv.{name}", value, "one character that ends no line", f"write for example {mend}")
        if self.delimiter in (self.quote, self.escape):
            expected = "another character than quote and escape"
            yield Fault("csv.delimiter", self.delimiter, expected, 'write for example delimiter=";"')
        texts: object = self.nulls
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
            yield Fault("csv.null", self.null, "a text, or a tuple of texts", 'write for example null=("", "NULL")')
        elif not self._faulty_characters() and any(
            set(text) & {"\r", "\n", self.delimiter, self.quote} for text in texts
        ):
            yield Fault("csv.null", self.null, "texts without delimiters, quotes and line ends", 'write null="NULL"')
        if not _keeps_ascii(self.encoding):
            expected = "the name of a codec in which ASCII characters are single bytes"
            yield Fault("csv.encoding", self.encoding, expected, "convert the files to UTF-8, with iconv -t UTF-8")
        header: object = self.header
        if not isinstance(header, bool):
            yield Fault("csv.header", header, "True or False", "leave it out for True")

    def _faulty_characters(self) -> bool:
        return not all(isinstance(one, str | None) for one in (self.delimiter, self.quote))


def _keeps_ascii(encoding: object) -> bool:
    try:
        return isinstance(encoding, str) and _ASCII.encode(encoding) == _ASCII.encode("ascii")
    except (LookupError, UnicodeError, ValueError, TypeError):
        return False


RFC_4180 = Csv()
"""The default options: values between commas, as in RFC 4180."""
