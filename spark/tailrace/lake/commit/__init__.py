"""Commit to tables safely: define branches, leases, runs, epoch properties, and the expiry of old snapshots."""
