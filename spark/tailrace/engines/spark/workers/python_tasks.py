"""Run Python code on Spark's executors, in one task per part of the work and with little overhead.

Between two tasks, Spark's Python worker does two slow things. It searches all objects of the imported packages for
garbage, which takes 0.2 s. It also reads the directories of all archives on its path again. These directories have
thousands of entries, so this takes 0.25 s. At its end, each task of this module prepares the worker, so the worker does
not repeat this work before the next task.
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
Part = TypeVar("Part")


def over_batches(function: OverBatches) -> OverBatches:
    """Wrap a function for `mapInArrow`, so that each task, at its end, prepares the worker for a fast next task."""

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        finally:
            hurry_the_next()

    return over


def over_group(function: Callable[..., pa.Table], *tables: pa.Table) -> pa.Table:
    """Call a function on the tables of a group. Then prepare the worker for a fast next task."""
    try:
        return function(*tables)
    finally:
        hurry_the_next()


def hurry_the_next() -> None:
    """Prepare this worker process for a fast next task, and release unused memory. Each task calls this at its end.

    Between two tasks, Spark calls `importlib.invalidate_caches` and `gc.collect`. `importlib.invalidate_caches` reads
    the directory of each archive in Python's importer cache, so this function removes the archives from that cache.
    `gc.collect` searches all objects that are not frozen, so this function freezes the objects. Arrow keeps freed
    memory: 180 MB after it has written 64 MB of records. Other processes need that memory.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    _set_aside()
    pa.default_memory_pool().release_unused()


@cache
def _set_aside() -> None:
    """Freeze this process's objects, most of which belong to imported packages, so `gc.collect` skips them."""
    gc.collect()
    gc.freeze()


def for_each(
    spark: SparkSession, parts: Sequence[Part], call: Callable[[Part], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:  # fmt: skip
    """Call a function on each part, with one Python task per part on the executors.

    The results are returned as one data frame. Spark starts separate Python processes for each kind of call. So all
    tasks that need no data frame as input are started by this function, and they share the same processes.
    """

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch["id"].to_pylist():
                yield from call(parts[place])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(over_batches(made), from_arrow_schema(schema))


def call_results(
    spark: SparkSession, parts: Sequence[Sequence[str]], call: Callable[[Sequence[str]], Found]
) -> list[Found] | None:
    """Call a function on each part, with one Python task per part on the executors.

    Returns the list of the results, or None if a task failed.
    """

    def packed(part: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([pickle.dumps(call(part))])], _PICKLED)

    answers = try_on_executors(for_each(spark, parts, packed, _PICKLED).toArrow)
    return None if answers is None else [pickle.loads(result) for result in answers["result"].to_pylist()]


_PICKLED = pa.schema({"result": pa.binary()})
"""The schema in which an executor sends a pickled result to the driver."""


def fetch_shares(
    spark: SparkSession, parts: Sequence[Sequence[str]],
    call: Callable[[Sequence[str]], Iterator[tuple[int, pa.RecordBatch]]], schema: pa.Schema, most: int,
) -> FetchedShares | None:  # fmt: skip
    """Call a function on each part on the executors, and fetch the resulting batches together with their share numbers.

    Returns None if the results exceed `most` bytes, or are larger than the driver accepts from one job. The batches
    pass through the JVM as compressed bytes. Otherwise the JVM would convert rows to objects and back to bytes, which
    would need more heap.
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
    """Rows that this process has fetched from executors. The rows are divided into shares.

    A share stays compressed until it is read.
    """

    answers: pa.Table
    schema: pa.Schema

    def shares(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield each share that has rows, as a pair of the share's number and a table of the share's rows."""
        for share in sorted(pc.unique(self.answers["share"]).to_pylist()):
            yield share, self.rows(pc.equal(self.answers["share"], share))

    def rows(self, which: pa.ChunkedArray | None = None) -> pa.Table:
        """Return the rows of all batches, or only of the batches that the mask `which` selects."""
        packed = self.answers["rows"] if which is None else self.answers["rows"].filter(which)
        return pa.Table.from_batches([_unpacked(one.as_buffer()) for one in packed], self.schema)


_PACKED = pa.schema({"share": pa.int64(), "rows": pa.binary(), "size": pa.int64()})
"""The schema in which an executor sends batches to the driver.

The columns are the number of the share, the compressed rows, and the size of the uncompressed rows in bytes.
"""


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
    """Run a Spark job that uses Python workers on the executors. Returns the job's result, or None if the job fails.

    For example, a job fails if an executor lacks this package or enough memory. If the result is None, the caller must
    do the work in Spark itself. If a job was cancelled, the error of the job is raised.
    """
    try:
        return job()
    except (Py4JJavaError, PySparkException) as error:
        if "cancelled" in str(error):
            raise
        return None


def files_in_parts(files: Sequence[str], sizes: Sequence[int], cores: int, part: int) -> list[list[str]]:
    """Split a list of files into parts for tasks, without changing the order of the files.

    There are about three parts per core. If the parts would then have more than `part` bytes on average, the files are
    split into more parts. A part has at least one file.

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
