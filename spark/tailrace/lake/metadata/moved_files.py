"""For a moved table, rewrite the files that contain addresses of other files.

The files that contain addresses are metadata files, manifest lists, manifests and delete files. No file is overwritten.
A new file is written next to each old file, and the caller then makes the catalog refer to the new metadata files.
Until then, the table is unchanged. An interrupted relocation leaves only files that do not belong to any snapshot.
"""

from __future__ import annotations

import gzip
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.lake.metadata.avro_values import AvroFile
from tailrace.lake.metadata.lake_place import PlaceError, path_of

_DELETED = 2147483546
"""The id of a delete file's column that has, for each deleted row, the address of the row's data file."""

_PATHS = ("file_path", "referenced_data_file")
_POSITION_DELETES = 1


@dataclass
class Renaming:
    """Maps addresses in a lake's former folders to its present folder, and rewrites files that contain such addresses.

    `before` lists all paths under which the lake's tables may refer to the lake's former folder. `files` is the number
    of rewritten files; `elsewhere` has the addresses of data files outside the lake.
    """

    before: Sequence[str]
    now: str
    files: int = 0
    elsewhere: set[str] = field(default_factory=set)
    _done: dict[str, tuple[str, int]] = field(default_factory=dict)

    def new_address(self, address: str) -> str | None:
        """Return the new address of a file or folder, or None if the file or folder is outside the lake.

        The new address has the same form as the old address, such as a path or a `file:` URL.
        """
        path = path_of(address)
        # The longest folder path is tried first, because one folder may be inside another folder.
        for one in sorted((self.now, *self.before), key=len, reverse=True):
            if path == one or path.startswith(f"{one}/"):
                return f"{address[: len(address) - len(path)]}{self.now}{path[len(one) :]}"
        return None

    def rewrite_metadata(self, address: str) -> str:
        """Rewrite the metadata of a table or view; return the address of the new file."""
        at = self._here(address)
        text = self._read(at)
        data = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
        made = self._json(data)
        for snapshot, old in zip(made.get("snapshots", ()), data.get("snapshots", ()), strict=True):
            snapshot["summary"] = old.get("summary", {})
            snapshot["manifest-list"] = self._once(old["manifest-list"], self._list)[0]
        if "metadata-log" in made:
            made["metadata-log"].append({"metadata-file": at, "timestamp-ms": data["last-updated-ms"]})
        number = re.match(r"\d+", Path(path_of(at)).name)
        name = f"{int(number[0]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"
        return self._write(f"{at.rpartition('/')[0]}/{name}", json.dumps(made).encode())

    def _json(self, value: Any) -> Any:
        """Return a JSON value in which each text that is an address inside the lake is replaced by the new address."""
        if isinstance(value, dict):
            return {name: self._json(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._json(one) for one in value]
        return (self.new_address(value) or value) if isinstance(value, str) else value

    def _list(self, at: str) -> tuple[str, int]:
        """Rewrite a manifest list and its manifests; return the new manifest list's address and size."""
        file, records = AvroFile.read(self._read(at)), []
        for record in file.records:
            path, length = self._once(record["manifest_path"], self._manifest)
            records.append({**record, "manifest_path": path, "manifest_length": length})
        return self._beside(at, file.with_records(records))

    def _manifest(self, at: str) -> tuple[str, int]:
        file = AvroFile.read(self._read(at))
        records = [{**record, "data_file": self._data_file(record)} for record in file.records]
        return self._beside(at, file.with_records(records))

    def _data_file(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        held = dict(entry["data_file"])
        for name in _PATHS:
            if held.get(name) is None:
                continue
            there = self.new_address(held[name])
            if there is None:
                self.elsewhere.add(held[name])
            held[name] = there or held[name]
        deleted = entry["status"] == 2
        if held.get("content") == _POSITION_DELETES and not deleted and held["file_format"].upper() == "PARQUET":
            held["file_path"], held["file_size_in_bytes"] = self._once(entry["data_file"]["file_path"], self._deletes)
            for bound in ("lower_bounds", "upper_bounds"):
                if held.get(bound):
                    held[bound] = [one for one in held[bound] if one["key"] != _DELETED]
        return held

    def _deletes(self, at: str) -> tuple[str, int]:
        """Rewrite a delete file, whose rows contain addresses of data files; return the new file's address and size."""
        rows = pq.read_table(self._path(at))
        paths = rows["file_path"]
        named = {path: self.new_address(path) or path for path in pc.unique(paths).to_pylist()}
        column = pa.chunked_array([pa.array([named[one] for one in paths.to_pylist()], paths.type)])
        place = rows.schema.get_field_index("file_path")
        new = f"{at.rpartition('/')[0]}/{uuid.uuid4()}-deletes.parquet"
        pq.write_table(rows.set_column(place, rows.schema.field(place), column), path_of(new), compression="zstd")
        self.files += 1
        return new, Path(path_of(new)).stat().st_size

    def _once(self, address: str, write: Any) -> tuple[str, int]:
        """Rewrite a file unless this was already done; return the file's new address and size.

        A file to which several files refer is rewritten only once. A file outside the lake is not rewritten, and keeps
        its address.
        """
        if address not in self._done:
            at = self.new_address(address)
            self._done[address] = (address, Path(self._path(address)).stat().st_size) if at is None else write(at)
        return self._done[address]

    def _beside(self, at: str, data: bytes) -> tuple[str, int]:
        new = f"{at.rpartition('/')[0]}/{uuid.uuid4()}-{Path(path_of(at)).name[-40:]}"
        return self._write(new, data), len(data)

    def _here(self, address: str) -> str:
        return self.new_address(address) or address

    def _read(self, at: str) -> bytes:
        return Path(self._path(at)).read_bytes()

    def _path(self, at: str) -> str:
        path = path_of(at)
        if not Path(path).is_file():
            raise PlaceError(
                f"{path}, which the lake's tables name, is not there",
                "copy the lake anew while nothing writes to it, the whole folder with its catalog",
            )
        return path

    def _write(self, at: str, data: bytes) -> str:
        Path(path_of(at)).write_bytes(data)
        self.files += 1
        return at
