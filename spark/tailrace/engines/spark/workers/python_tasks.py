"""Run work in the executors' Python, a task for each part, with little cost besides the work.

Between two tasks, Spark's worker searches all objects of the imported packages for garbage, and reads the directories
of all archives on its path again, with thousands of entries. That takes a fifth and a quarter of a second, which each
task here saves the next one.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.engines.python.record_calls import OverBatches
from tailrace.engines.spark.workers.arrow_frames import arrow_of

Found = TypeVar("Found")


def over_batches(function: OverBatches) -> OverBatches:
    """Return a function for `mapInArrow` that calls another function, and lets the next task begin sooner."""

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        finally:
            hurry_the_next()

    return over


def over_group(function: Callable[..., pa.Table], *tables: pa.Table) -> pa.Table:
    """Call a function on the tables of a group, and then let the next task start sooner."""
    try:
        return function(*tables)
    finally:
        hurry_the_next()


def hurry_the_next() -> None:
    """Save the next task of this process Spark's work before it, and free memory; a task calls this at its end.

    `importlib.invalidate_caches` reads the directory of each archive that Python has imported from, so the archives are
    dropped until the next import. `gc.collect` searches all objects that are not frozen. Arrow keeps freed memory, 180
    MB after it wrote 64 MB of records, and other processes need that memory.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    _set_aside()
    pa.default_memory_pool().release_unused()


@cache
def _set_aside() -> None:
    """Freeze the objects of this process, which are by now the objects of its packages: no garbage search sees them."""
    gc.collect()
    gc.freeze()


def for_each(
    spark: SparkSession, parts: Sequence[Sequence[str]], call: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:  # fmt: skip
    """Return the frame of the results of a call for each part, each in a task of the executors' Python.

    All such work is done by this function, as Spark keeps separate Python processes for each kind of call.
    """

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch["id"].to_pylist():
                yield from call(parts[place])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(over_batches(made), from_arrow_schema(schema))


def call_results(
    spark: SparkSession, parts: Sequence[Sequence[str]], call: Callable[[Sequence[str]], Found]
) -> list[Found] | None:
    """Return the results of a call for each part, each in a task of the executors' Python; None where a task failed."""

    def packed(part: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([pickle.dumps(call(part))])], _PICKLED)

    answers = try_on_executors(for_each(spark, parts, packed, _PICKLED).toArrow)
    return None if answers is None else [pickle.loads(result) for result in answers["result"].to_pylist()]


_PICKLED = pa.schema({"result": pa.binary()})
"""The column in which pickled results go from an executor to the driver."""


def fetch_shares(
    spark: SparkSession, parts: Sequence[Sequence[str]],
    call: Callable[[Sequence[str]], Iterator[tuple[int, pa.RecordBatch]]], schema: pa.Schema, most: int,
) -> FetchedShares | None:  # fmt: skip
    """Bring over the results of a call for each part, each batch with the number of its share.

    Returns None where the results are more than `most` bytes, or more than the driver takes of one job. The JVM gets
    compressed bytes: it would turn rows into objects and bytes again, and its heap would grow with them.
    """

    def packed(part: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for share, batch in call(part):
            yield pa.record_batch([[share], pa.array([_packed(batch)], pa.binary()), [batch.nbytes]], schema=_PACKED)

    answers = arrow_of(for_each(spark, parts, packed, _PACKED))
    if answers is None or (pc.sum(answers["size"]).as_py() or 0) > most:
        return None
    return FetchedShares(answers, schema)


@dataclass(frozen=True)
class FetchedShares:
    """Rows that came to this process in shares. A share is compressed until it is read."""

    answers: pa.Table
    schema: pa.Schema

    def shares(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield each share that has rows, with its number."""
        for share in sorted(pc.unique(self.answers["share"]).to_pylist()):
            yield share, self.rows(pc.equal(self.answers["share"], share))

    def rows(self, which: pa.ChunkedArray | None = None) -> pa.Table:
        """Return all rows, or the rows of some batches."""
        packed = self.answers["rows"] if which is None else self.answers["rows"].filter(which)
        return pa.Table.from_batches([_unpacked(one.as_buffer()) for one in packed], self.schema)


_PACKED = pa.schema({"share": pa.int64(), "rows": pa.binary(), "size": pa.int64()})
"""The columns in which batches go from an executor to the driver: the compressed rows, and their size."""


def _packed(batch: pa.RecordBatch) -> bytes:
    written = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(written, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    packed: bytes = written.getvalue().to_pybytes()
    return packed


def _unpacked(written: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(written) as stream:
        return stream.read_next_batch()


def try_on_executors(job: Callable[[], Found]) -> Found | None:
    """Do a job in the executors' Python; None where an executor lacks the package or memory, so Spark has to do it.

    Raises the error of a job that was cancelled.
    """
    try:
        return job()
    except (Py4JJavaError, PySparkException) as error:
        if "cancelled" in str(error):
            raise
        return None


def files_in_parts(files: Sequence[str], sizes: Sequence[int], cores: int, part: int) -> list[list[str]]:
    """Cut files, in their order, into parts for tasks: a few tasks for each core, or more tasks of about `part` bytes.

    >>> files_in_parts(["a", "b", "c", "d"], [5, 5, 5, 5], cores=1, part=5)
    [['a'], ['b'], ['c'], ['d']]
    >>> files_in_parts(["a", "b", "c", "d"], [4, 1, 1, 6], cores=1, part=100)
    [['a'], ['b', 'c', 'd']]
    """
    tasks = max(1, min(len(files), max(3 * cores, sum(sizes) // part)))
    ends, done = [0], 0
    for place, size in enumerate(sizes, 1):
        done += size
        if done * tasks >= sum(sizes) * len(ends) or place == len(files):
            ends.append(place)
    return [list(files[start:end]) for start, end in pairwise(ends)]
