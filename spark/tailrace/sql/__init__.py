"""The step, the ledger's rows and the answers as SQL text: one dialect, Spark's, and no engine."""
