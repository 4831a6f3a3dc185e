"""Read and rewrite Iceberg's metadata files: the times of commits, and the locations of files."""
