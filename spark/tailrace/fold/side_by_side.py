"""Work on the folds of an epoch side by side, on several threads; the results do not depend on the threads.

The folds of a stream share one process, but no state: each fold has its own connection to the database, its own ledger
and its own lease. DuckDB and the writers of files are native code, so several folds can compute at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from tailrace.fold.fold import Phases
from tailrace.fold.ledger_fold import LedgerFold

Result = TypeVar("Result")

MOST_THREADS = 16
"""The maximum number of threads. Each thread has the rows of one fold's epoch in memory."""


def in_waves(folds: Iterable[LedgerFold]) -> list[list[LedgerFold]]:
    """Divide folds into waves: a fold is in a later wave than all folds whose output it reads.

    In `folds`, each fold comes after the folds whose output it reads. A wave keeps this order.
    """
    waves, places = list[list[LedgerFold]](), dict[str, int]()
    for fold in folds:
        place = 1 + max((places[one.name] for one in fold.definition.before if one.name in places), default=-1)
        places[fold.definition.name] = place
        if place == len(waves):
            waves.append([])
        waves[place].append(fold)
    return waves


class Outcome(Generic[Result]):
    """The outcome of work: its result, or the error that the caller gets when it asks for the result."""

    def __init__(self, work: Callable[[Phases], Result]) -> None:
        self.phases, self._done = Phases(), Future[Result]()
        try:
            self._done.set_result(work(self.phases))
        except BaseException as error:
            self._done.set_exception(error)

    def result(self) -> Result:
        """Return the result. Raises the error with which the work failed."""
        return self._done.result()


class SideBySide:
    """The threads that work on the folds of one stream. They start when there is work for several folds."""

    def __init__(self, threads: int) -> None:
        """Prepare `threads` threads, but at most `MOST_THREADS`. If there is only one, the caller's thread works."""
        self.threads = min(MOST_THREADS, threads)
        self._pool: ThreadPoolExecutor | None = None

    def each(
        self,
        folds: Sequence[LedgerFold],
        work: Callable[[LedgerFold, Phases], Result],
        beside: Callable[[LedgerFold], bool],
        phases: Phases,
    ) -> list[tuple[LedgerFold, Outcome[Result]]]:
        """Do work for each fold, and return the outcomes in the order of the folds, after all work is done.

        Threads work on the folds for which `beside` is true. Meanwhile, the caller's thread works on the other folds,
        in their order. The time that has passed is added to `phases`, in proportion to what the folds spent in each.
        """
        apart = [place for place, fold in enumerate(folds) if beside(fold)] if self.threads > 1 else []
        ahead = dict[int, Future[Outcome[Result]]]()
        if len(apart) > 1:
            self._pool = self._pool or ThreadPoolExecutor(self.threads, thread_name_prefix="side-by-side")
            ahead = {place: self._pool.submit(Outcome, _bound(work, folds[place])) for place in apart}
        here = {place: Outcome(_bound(work, fold)) for place, fold in enumerate(folds) if place not in ahead}
        done = [(fold, here[place] if place in here else ahead[place].result()) for place, fold in enumerate(folds)]
        phases.share(outcome.phases for _, outcome in done)
        return done

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _bound(work: Callable[[LedgerFold, Phases], Result], fold: LedgerFold) -> Callable[[Phases], Result]:
    return lambda phases: work(fold, phases)
