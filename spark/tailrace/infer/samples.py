"""Read a bounded sample of files, of each format that a log reads: JSON, CSV, Parquet and Avro, compressed too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tailrace.infer.csv_dialects import WIDE, cell_of, guessed, names_of
from tailrace.infer.observations import LONGEST_NAME
from tailrace.infer.sample import LONGEST, Sample, SampledFile, SampleError, json_value
from tailrace.infer.typed_samples import read_typed
from tailrace.ingest.compressed_text import AT_ONCE, Text, lines_of, open_text
from tailrace.ingest.folders.file_names import ENDINGS, format_of, is_read
from tailrace.ingest.json_values import json_texts
from tailrace.model.base.json_scalars import Number
from tailrace.model.logs.csv_options import Csv
from tailrace.model.logs.csv_records import divide, is_blank, line_of
from tailrace.model.logs.json_records import NO_FOLDER_VALUE

if TYPE_CHECKING:
    from tailrace.ingest.sources import Format

FILES = 20
"""The maximum number of files of a folder that are read."""

LISTED = 100_000
"""The maximum number of files of a folder among which the files are chosen."""


def read_files(place: Path, records: int, format: Format | None = None) -> Sample:
    """Read at most so many records of a file, or of some files of a folder. Raises `SampleError` if there are none."""
    files, kind, sample = _chosen(place, records, format)
    if kind == "csv":
        _read_csv(sample, files, records)
    else:
        for number, file in enumerate(files):
            left = max(1, (records - len(sample.records)) // (len(files) - number))
            before = len(sample.records)
            with _reading(file, kind):
                whole = _read_json(sample, file, left) if kind == "json" else read_typed(sample, file, left)
                sample.whole &= whole
            _add_part(sample, file, before)
    if not sample.records:
        what = {"json": "a JSON object", "csv": "a row below the header", "parquet": "a row", "avro": "a record"}[kind]
        unread = sample.unread + sample.skipped
        raise SampleError(f"{place}: no record was found (unreadable lines: {unread:,}): expected {what}")
    _add_folders(sample, place)
    return sample


def _chosen(place: Path, records: int, format: Format | None) -> tuple[list[Path], Format, Sample]:
    """Choose the files to read; return them, their format, and the sample without records."""
    files = _files(place) if place.is_dir() else [place]
    formats = {one: format or format_of(one.name) for one in files}
    kind = next((one for one in formats.values() if one), None)
    if kind is None:
        endings = ", ".join(f".{one}" for one in ENDINGS)
        raise SampleError(
            f"{place}: expected a file of JSON, CSV, Parquet or Avro, or a folder of such files: their names end in "
            f"{endings}, and texts also in .gz, .bz2, .zst, .snappy or .deflate if they are compressed; for other "
            "names, pass --format"
        )
    alike = [one for one in files if formats[one] == kind]
    chosen = _spread(alike, min(FILES, records))
    sample = Sample(kind, str(place), _stem(place), whole=len(chosen) == len(alike) and len(files) < LISTED)
    if len(alike) < len(files):
        sample.notes.append(
            f"A log has files of one format: {len(files) - len(alike):,} files of the folder are no {kind}, and are "
            "not read here. Move them away before a stream reads the folder."
        )
    return chosen, kind, sample


def _files(folder: Path) -> list[Path]:
    return sorted(islice((one for one in folder.rglob("*") if is_read(one, folder)), LISTED))


def _spread(files: Sequence[Path], most: int) -> list[Path]:
    """Return some of the files, at equal distances."""
    if len(files) <= most:
        return list(files)
    return [files[place * len(files) // most] for place in range(most)]


def _stem(place: Path) -> str:
    """Return the name of a file or a folder, of which a part such as `dt=2026-01-31` is no name."""
    if not place.is_dir() and "=" not in place.name:
        return place.name.partition(".")[0]
    return next((one.name for one in (place.resolve(), *place.resolve().parents) if "=" not in one.name), "")


def _add_part(sample: Sample, file: Path, before: int, header: bytes | None = None) -> None:
    sample.parts.append(len(sample.records) - before)
    sample.files.append(SampledFile(file, header))


@contextmanager
def _reading(file: Path, kind: str) -> Iterator[None]:
    """Raise `SampleError` for an error that reading a file raises."""
    try:
        yield
    except SampleError:
        raise
    except (OSError, EOFError, ValueError) as error:
        raise SampleError(f"{file} cannot be read as {kind}: {error}") from error


class _Bounded:
    """The text of a file, up to the number of bytes that the sample may still read; `cut` says if it ends there."""

    def __init__(self, sample: Sample, text: Text) -> None:
        self._sample, self._text, self.cut = sample, text, False

    def read(self, size: int) -> bytes:
        self.cut |= self._sample.left <= 0
        part = b"" if self.cut else self._text.read(min(size, self._sample.left))
        self._sample.left -= len(part)
        return part


def _texts(sample: Sample, file: Path) -> Iterator[bytes]:
    """Yield the records of a file of text that are not parsed yet, as the reader of its format divides the text."""
    with file.open("rb") as opened:
        found = open_text(file.name.lower(), opened)
        if found is None:
            raise SampleError(f"{file}: only Spark reads files that are compressed as .lz4: infer from another file")
        text = _Bounded(sample, found)
        if sample.format == "json":
            divided = json_texts(text, LONGEST)
        else:
            divided = lines_of(iter(lambda: text.read(AT_ONCE), b""))
        last: bytes | None = None
        for number, one in enumerate(divided):
            if not number and one.startswith(WIDE):
                raise SampleError(f"{file} is UTF-16, which is not read: convert it to UTF-8")
            if last is not None:
                yield last
            last = one
        if text.cut:
            # The last text may be cut off.
            sample.whole = False
        elif last is not None:
            yield last


def _read_json(sample: Sample, file: Path, most: int) -> bool:
    found = 0
    for text in _texts(sample, file):
        if is_blank(text):
            continue
        if found == most:
            return False
        found += sample.add_line(text)
    return True


def _read_csv(sample: Sample, files: Sequence[Path], records: int) -> None:
    """Read lines of CSV files, find out how they are divided, and divide them."""
    read = list[list[bytes]]()
    for number, file in enumerate(files):
        left = (records - sum(map(len, read))) // (len(files) - number)
        with _reading(file, "csv"):
            lines = [*islice((one for one in _texts(sample, file) if not is_blank(one)), max(1, left) + 2)]
        sample.whole &= len(lines) < max(1, left) + 2
        read.append(lines[: max(1, left) + 1])
    sample.csv, notes = guessed(read)
    sample.notes += notes
    names = list[str]()
    if not sample.csv.header:
        rows = (_divided(sample.csv, line) for lines in read for line in lines)
        names = names_of([row for row in rows if row is not None])
    reasons = Counter[str]()
    for file, lines in zip(files, read, strict=True):
        before, header = len(sample.records), None
        if sample.csv.header and lines:
            header, *lines = lines
            names = [(name or "").strip() for name in _divided(sample.csv, header) or ()]
            for name in names:
                if not name or len(name) > LONGEST_NAME:
                    sample.left_out[name[:LONGEST_NAME]] = "a column with no name, or a very long one"
                elif names.count(name) > 1:
                    sample.left_out[name] = "several columns with one name"
        for line in lines:
            cells = _divided(sample.csv, line)
            if line == header:
                continue
            if cells is None or len(cells) != len(names):
                sample.unread += 1
                reasons["there is another number of cells" if cells else "quotes are not paired on the line"] += 1
                continue
            row = zip(names, cells, strict=True)
            sample.records.append({name: _cell(text) for name, text in row if name not in sample.left_out})
            sample.raw.append(line)
        _add_part(sample, file, before, header)
    sample.notes += [f"In {count:,} lines, {reason}." for reason, count in reasons.items()]


def _divided(csv: Csv, line: bytes) -> list[str | None] | None:
    try:
        return divide(csv, line_of(line.decode(csv.encoding)))
    except ValueError:
        return None


def _cell(text: str | None) -> Any:
    """Return the value of a cell, which may be an object or a list in JSON."""
    if text is not None and text.lstrip().startswith(("{", "[")) and len(text) <= LONGEST:
        made = json_value(text.encode())
        return text if made is None else made
    return cell_of(text)


def _add_folders(sample: Sample, place: Path) -> None:
    """Add the values in the names of folders to the records, unless a record has another value of that name."""
    values = [_folder_texts(one.path, place) for one in sample.files]
    names = dict.fromkeys(name for one in values for name in one)
    for name in names:
        texts = [one[name] for one in values if one.get(name, NO_FOLDER_VALUE) != NO_FOLDER_VALUE]
        # A month or an hour is a number, though it begins with a zero; a longer code is a text.
        whole = all(text.isascii() and text.isdigit() and (len(text) <= 2 or text[0] != "0") for text in texts)
        made = [None if one.get(name, NO_FOLDER_VALUE) == NO_FOLDER_VALUE else one[name] for one in values]
        own = [None if text is None else Number(str(int(text))) if whole else text for text in made]
        if not texts or not _fill(sample, name, own):
            sample.notes.append(
                f"The folders {name}=… are not used: they have no value, or records have other values of {name}."
            )


def _fill(sample: Sample, name: str, values: Sequence[Any]) -> bool:
    """Add a value to all records of each file; return False if a record has another value under the name."""
    begins, made = 0, list[Mapping[str, Any]]()
    for count, value in zip(sample.parts, values, strict=True):
        for record in sample.records[begins : begins + count]:
            own = record.get(name)
            if own is not None and value is not None and str(own) != str(value):
                return False
            made.append({**record, name: value if own is None else own})
        begins += count
    sample.records[:] = made
    sample.folders.append(name)
    return True


def _folder_texts(file: Path, place: Path) -> dict[str, str]:
    """Return the values in the names of folders: of all folders in `place`, and of those next above it."""
    file, place = file.resolve(), place.resolve()
    below = [] if file == place else list(file.relative_to(place).parts[:-1])
    top = place.parent if file == place else place
    while "=" in top.name:
        below.insert(0, top.name)
        top = top.parent
    found = (name.partition("=") for name in below)
    return {unquote(name): unquote(text) for name, given, text in found if given}
