"""What Iceberg's files of a table's metadata say: the times of its commits, and the places of its files."""
