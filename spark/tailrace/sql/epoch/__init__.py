"""Write an epoch as SQL: aggregate records to partials, combine these with the open windows, and write ledger rows."""
