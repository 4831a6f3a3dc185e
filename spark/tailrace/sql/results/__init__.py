"""Write the answers for complete input as SQL, and the ledger rows that a backfill derives from these answers."""
