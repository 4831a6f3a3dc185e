"""The engine inside this process, for work that fits on one machine; it needs no JVM and no query planning by Spark."""
