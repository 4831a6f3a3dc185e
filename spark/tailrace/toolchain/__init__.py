"""The tools that Tailrace needs in addition to Python: a Java that Spark accepts, and pinned jars.

`python -m tailrace.toolchain` prepares these tools. Later, `require_java` and `class_path` find the tools without using
the network.
"""

from __future__ import annotations

from tailrace.toolchain.jars import GROUPS, Jar, class_path, fetch, missing_jars, pinned_jars
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
    "missing_jars",
    "pinned_jars",
    "quiet_home",
    "require_java",
]
