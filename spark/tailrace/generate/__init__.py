"""Made-up logs of the applications that the papers were written for, the same each time for a seed; and a real one.

A generator gives deliveries: what a source brings, with the instant at which it does. `delivery_files` writes them as
files that a stream finds. `flights` are real, and nothing of them is made up.
"""
