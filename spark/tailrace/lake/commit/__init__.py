"""Commit safely: branches, leases, runs, the properties that describe epochs, and the expiry of old snapshots."""
