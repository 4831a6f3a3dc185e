"""Find out how many cores and how much memory this process may use: those of the machine, or of its container.

A container has a share of the machine's cores and memory, which its control group (cgroup) limits. A process that takes
more threads than its share is stopped for a part of each tenth of a second; one that takes more memory is killed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of cores that this process may use, at least 1.

    The number follows from the cores that the process is bound to (`taskset`, cpusets), and from the processor time
    that its control groups give it, rounded up. `root` is the root of the file system.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *(math.ceil(quota / period) for quota, period in _quotas(root) if period > 0)]))


def usable_memory(root: Path = _ROOT) -> int:
    """Return the bytes of memory that this process may use: the machine's, or the least that a control group gives."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = (
        limit
        for folder in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        for limit in _numbers(folder / name)
    )
    return min([machine, *limits])


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Return the processor time, in microseconds, and the period for which it is given, of each control group."""
    for folder in _groups(root, "cpu"):
        if len(both := _numbers(folder / "cpu.max")) == 2:
            yield both[0], both[1]
        quota, period = _numbers(folder / "cpu.cfs_quota_us"), _numbers(folder / "cpu.cfs_period_us")
        # A quota of -1 is no limit.
        if quota and period and quota[0] > 0:
            yield quota[0], period[0]


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Return the folders of this process's control groups of a controller, and of the groups above, to the topmost.

    Version 2 has one tree for all controllers, whose line in `/proc/self/cgroup` names no controller; version 1 has a
    tree for each. In a container, the folder of the topmost group is often the only one that can be seen.
    """
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top = mounted
        elif controller in controllers.split(","):
            top = mounted / controller
        else:
            continue
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            yield top / part


def _numbers(file: Path) -> list[int]:
    """Return the numbers of a file; empty if the file is missing or if it says that there is no limit (`max`)."""
    words = _text(file).split()
    return [int(word) for word in words] if words and all(word.lstrip("-").isdigit() for word in words) else []


def _text(file: Path) -> str:
    """Return the text of a file of the kernel; empty if the file is missing or may not be read."""
    try:
        return file.read_text()
    except OSError:
        return ""
