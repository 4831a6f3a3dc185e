"""Commit safely: branches, leases, runs, properties that describe epochs, and the retention of snapshots."""
