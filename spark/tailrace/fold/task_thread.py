"""A thread beside the stream's own that does tasks in the order in which they came.

A task that fails is the last one: later tasks build on its result, so they are never begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class TaskThread:
    """A thread with room for `room` tasks that are not done; a caller that brings one more waits.

    >>> done, worker = [], TaskThread("doctest", room=2)
    >>> for number in range(5):
    ...     worker.submit(lambda number=number: done.append(number))
    >>> worker.settle()
    >>> done
    [0, 1, 2, 3, 4]
    >>> worker.close()
    """

    def __init__(self, name: str, room: int) -> None:
        self.room = room
        self.failure: BaseException | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._pending: deque[Future[None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        """Have `work` done after the tasks brought before it. Raises the error of an earlier task that failed."""
        self.settle(self.room - 1)
        self._pending.append(self._pool.submit(self._run, work))

    @property
    def idle(self) -> bool:
        """Whether every task that was brought is done."""
        # A copy, as another thread may bring more meanwhile.
        return all(task.done() for task in tuple(self._pending))

    def settle(self, left: int = 0) -> None:
        """Wait until at most `left` tasks are not done. Raises the error of a task that failed."""
        while len(self._pending) > left:
            self._pending.popleft().result()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the thread once its present task is done; tasks that were not begun are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, work: Callable[[], None]) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            work()
        except BaseException as error:
            self.failure = error
            raise
