"""The engine inside the process: whatever fits one machine, with no JVM and no query planned by Spark."""
