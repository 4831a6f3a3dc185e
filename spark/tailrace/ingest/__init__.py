"""Read the records of a source and write them to a log.

This process itself parses records that have a simple form. Spark parses all other records.
"""
