"""Run streams: one kind of stream lands the records of a source and folds them.

The other kind of stream folds records that another process has landed.
"""
