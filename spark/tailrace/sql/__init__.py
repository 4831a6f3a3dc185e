"""Write a definition's step, ledger rows and answers as SQL, in one dialect for all engines: Spark's dialect."""
