"""Read the lake's tables, for users and for the processes that keep tables of answers current; no JVM is needed."""
