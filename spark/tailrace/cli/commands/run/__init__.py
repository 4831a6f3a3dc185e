"""Commands that run definitions or queries on an engine."""
