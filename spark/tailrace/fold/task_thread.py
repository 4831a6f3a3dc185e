"""Run tasks in order on a thread next to the stream's thread.

If a task fails, no later task starts, because later tasks depend on its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class TaskThread:
    """A thread that runs tasks. At most `room` tasks may be unfinished; a caller that submits one more has to wait.

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
        """Submit a task, which runs after all earlier tasks. Raises the error of an earlier task that failed."""
        self.settle(self.room - 1)
        self._pending.append(self._pool.submit(self._run, work))

    @property
    def idle(self) -> bool:
        """True if all submitted tasks are done."""
        # The loop uses a copy of the list, because another thread may submit tasks in the meantime.
        return all(task.done() for task in tuple(self._pending))

    def settle(self, left: int = 0) -> None:
        """Wait until at most `left` tasks are unfinished. Raises the error of a task that failed."""
        while len(self._pending) > left:
            self._pending.popleft().result()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End the thread after its current task. Tasks that have not started are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, work: Callable[[], None]) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            work()
        except BaseException as error:
            self.failure = error
            raise
