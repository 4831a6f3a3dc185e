"""Commit: branches, the lease, runs, the properties of commits that describe epochs, and the snapshots to keep."""
