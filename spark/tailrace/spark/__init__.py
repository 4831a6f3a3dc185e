"""Tailrace on Spark: sessions, compiled definitions, streams and backfills. Importing it starts no JVM."""
