"""The tools beside Python that Tailrace runs on: a Java that Spark accepts, and pinned jars.

`python -m tailrace.toolchain` makes them ready; afterwards `require_java` and `class_path` only look for them, and
never use the network.
"""

from __future__ import annotations

from tailrace.toolchain.jars import GROUPS, Jar, class_path, fetch, missing, pinned
from tailrace.toolchain.java import Java, find_java, quiet_home, require_java
from tailrace.toolchain.tool_errors import ToolchainError

__all__ = [
    "GROUPS",
    "Jar",
    "Java",
    "ToolchainError",
    "class_path",
    "fetch",
    "find_java",
    "missing",
    "pinned",
    "quiet_home",
    "require_java",
]
