"""Make up logs of the papers' example applications, reproducibly by a seed; one log, of flights, is real.

A generator returns deliveries: records, each with the time at which a source delivers it. `delivery_files` writes
deliveries to files for a stream. `flights` loads the real log.
"""
