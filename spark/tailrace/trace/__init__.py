"""Trace records through definitions: the windows, panes, answers and rows of a record, read without an engine."""
