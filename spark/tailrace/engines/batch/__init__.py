"""Compute the answers of finished input on the engine chosen for it, for backfills, audits and replays."""
