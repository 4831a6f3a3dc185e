"""Tailrace: one windowed pipeline definition, run as a stream and as backfills, into the same Iceberg tables."""

__version__ = "0.1.0"
