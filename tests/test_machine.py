"""What this process may use of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.machine import usable_cores, usable_memory

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
BOUND = len(os.sched_getaffinity(0))


def kernel(root: Path, **files: str) -> Path:
    """Write files of the kernel, by their path with `__` for each slash."""
    for name, text in files.items():
        file = root / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def test_without_control_groups_the_machine_is_what_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == BOUND
    assert usable_memory(tmp_path) == MACHINE


def test_a_process_counts_the_cores_that_it_is_bound_to() -> None:
    lowest = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{lowest}}}); from tailrace.settings import Settings; "
    code += "print(Settings().threads)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", BOUND), ("9999999 100000", BOUND)]
)
def test_a_container_has_the_cores_of_its_share(tmp_path: Path, quota: str, cores: int) -> None:
    root = kernel(tmp_path, proc__self__cgroup="0::/pod/one", sys__fs__cgroup__pod__cpu_dot_max=quota)
    assert usable_cores(root) == cores


def test_a_container_of_the_first_version_of_control_groups_has_the_cores_of_its_share(tmp_path: Path) -> None:
    root = kernel(
        tmp_path,
        proc__self__cgroup="4:memory:/one\n2:cpu,cpuacct:/",
        sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us="100000",
        sys__fs__cgroup__cpu__cpu_dot_cfs_period_us="100000",
        sys__fs__cgroup__memory__one__memory_dot_limit_in_bytes="1000000",
    )
    assert usable_cores(root) == 1
    assert usable_memory(root) == 1_000_000
    kernel(tmp_path, sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us="-1")
    assert usable_cores(root) == BOUND


def test_the_least_memory_of_all_groups_above_counts(tmp_path: Path) -> None:
    root = kernel(
        tmp_path,
        proc__self__cgroup="0::/pod/one",
        sys__fs__cgroup__pod__one__memory_dot_max="max",
        sys__fs__cgroup__pod__memory_dot_max="2000000",
        sys__fs__cgroup__memory_dot_max="3000000",
    )
    assert usable_memory(root) == 2_000_000
