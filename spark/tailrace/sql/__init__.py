"""Write a definition's step, ledger rows and answers as SQL. All engines share one dialect, Spark's."""
