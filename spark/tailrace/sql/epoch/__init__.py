"""Write an epoch as SQL: partials, their meeting with the open windows, transitions, and the ledger's rows."""
