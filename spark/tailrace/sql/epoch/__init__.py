"""Write an epoch as SQL: partials, the open windows they meet, transitions, and the ledger's rows."""
