"""Compute the answers of finished input on the engine that fits it, for backfills, audits and replays."""
