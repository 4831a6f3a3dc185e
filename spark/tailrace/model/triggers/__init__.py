"""Triggers, which decide when in processing time panes fire: simple, composite and custom triggers."""
