"""Write an epoch as SQL: aggregate records by key and window, merge the results into open windows, and write ledger
rows.
"""
