"""`python -m benchmarks.planning`: what the model says of 10, 100 and 1,000 cores.

`show` prints it, `write` puts it into the pages of `docs/`, and `measure` measures anew, some 15 minutes on an idle
machine with two cores, and then writes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.measure import ROOT
from benchmarks.planning.measuring import TIMES, measured
from benchmarks.planning.pages import Planned, written


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("show", "write", "measure"), default="show")
    parser.add_argument("--times", type=int, default=TIMES, help=f"how often each stream is measured ({TIMES})")
    asked = parser.parse_args(given)
    if asked.what == "measure":
        started = time.perf_counter()
        measured(lambda text: print(f"{time.perf_counter() - started:5.0f} s  {text}", file=sys.stderr), asked.times)
    planned = Planned.read()
    if asked.what == "show":
        print("\n\n".join(planned.sections().values()))
        return 0
    for page in written(planned):
        print(f"wrote {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
