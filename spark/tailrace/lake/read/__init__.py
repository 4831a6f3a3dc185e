"""Read the lake's tables for users and for the followers of ledgers; no JVM is needed."""
