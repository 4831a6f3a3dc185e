"""Write an epoch as SQL: aggregate records to partials, merge the partials into open windows, and write ledger rows."""
