"""Check commits and files for changes that Tailrace did not make, independently of the rows."""
