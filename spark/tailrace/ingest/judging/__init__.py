"""SQL that judges raw values: whether each is of its declared type, whole, and if not, why."""
