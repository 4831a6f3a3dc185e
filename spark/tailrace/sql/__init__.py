"""Write the step, the ledger's rows and the answers as SQL, in one dialect, Spark's, for any engine."""
