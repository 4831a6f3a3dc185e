"""Made-up logs of the applications that the papers were written for, the same each time for a seed.

A generator gives deliveries: what a source brings, with the instant at which it does. `landing` writes them as files
that a stream finds.
"""
