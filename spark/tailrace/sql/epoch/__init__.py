"""Write an epoch as SQL: aggregate records into partials, merge partials into open windows, and write ledger rows."""
