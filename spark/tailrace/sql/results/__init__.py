"""Write, as SQL, the answers for complete input, and the ledger rows that a backfill derives from these answers."""
