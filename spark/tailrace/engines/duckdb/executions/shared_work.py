"""Compute once what several definitions of a stream need of the same bundle, such as the same steps.

A result is shared only while the stream folds the bundle. If computing a shared result fails, each definition computes
its own, so that each definition has its own error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

Result = TypeVar("Result")


class SharedWork:
    """The results that the definitions of one stream share; several threads use this object at the same time.

    `room` is the maximum size in bytes of the results that are kept.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._lock = threading.Lock()
        self._kinds, self._made = list[Any](), dict[int, Any]()
        self._bundles = dict[int, dict[int, Future[Any]]]()
        self._size = 0

    def kind(self, *work: object) -> int:
        """Return the number of a kind of work: equal work has an equal number.

        A definition asks once for the number of its work, because work may be slow to compare.
        """
        with self._lock:
            if work not in self._kinds:
                self._kinds.append(work)
            return self._kinds.index(work)

    def made(self, kind: int, make: Callable[[], Result]) -> Result:
        """Return the object that the definitions with a kind of work share; the first definition makes it."""
        with self._lock:
            if kind not in self._made:
                self._made[kind] = make()
            found: Result = self._made[kind]
            return found

    @contextmanager
    def of(self, bundles: Iterable[object]) -> Iterator[None]:
        """Share the results for these bundles as long as the block runs."""
        held = list(bundles)
        self._bundles, self._size = {id(bundle): {} for bundle in held if isinstance(bundle, pa.Table)}, 0
        try:
            yield
        finally:
            self._bundles = {}

    def has(self, bundle: pa.Table) -> bool:
        """Return True if definitions share the results for a bundle at present."""
        return id(bundle) in self._bundles

    def once(self, bundle: pa.Table, kind: int, compute: Callable[[], Result], size: Callable[[Result], int]) -> Result:
        """Return the result of work on a bundle; compute it only if no other definition has computed it.

        `size` returns the size of a result in bytes. A result for which there is no room is not kept.
        """
        there = self._bundles.get(id(bundle))
        if there is None:
            return compute()
        own = Future[Result]()
        with self._lock:
            found: Future[Result] = there.setdefault(kind, own)
        if found is not own:
            try:
                result: Result | None = found.result()
            except Exception:
                result = None
            return compute() if result is None else result
        try:
            result = compute()
        except BaseException as error:
            own.set_exception(error)
            raise
        with self._lock:
            self._size += size(result)
            kept = self._size <= self.room
        if not kept:
            with self._lock:
                there.pop(kind, None)
                self._size -= size(result)
        own.set_result(result)
        return result
