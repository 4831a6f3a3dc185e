"""Write the step, the ledger's rows and the answers as SQL. All engines share one dialect, Spark's."""
