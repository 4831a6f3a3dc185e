"""Read the records of a source and write them to a log.

This process parses records in a simple form; Spark parses all other records.
"""
