"""Check whether commits and files were changed by anything other than Tailrace, independently of the tables' rows."""
