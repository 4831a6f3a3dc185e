"""Runs of definitions on an engine, epoch by epoch."""
