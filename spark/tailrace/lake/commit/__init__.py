"""Commit: branches, the lease, runs, what commits say of epochs, and which snapshots are kept."""
