"""Made-up logs of the applications that the papers were written for, reproducible by their seed, and one real log.

A generator gives deliveries: records, each with the instant at which a source brings it. `delivery_files` writes
deliveries as files that a stream finds. `flights` is the real log: nothing of it is made up.
"""
