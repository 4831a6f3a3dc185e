"""Generators of logs for the papers' example applications.

The same seed always produces the same log. Only the log of flights consists of real records. A generator returns
deliveries: records, each with the time at which a source delivers the record. `delivery_files` writes deliveries to
files that a stream can read. `flights` loads the real log.
"""
