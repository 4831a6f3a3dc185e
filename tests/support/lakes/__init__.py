"""Lakes of a test's own with logs and ledgers, and files that land for them."""
