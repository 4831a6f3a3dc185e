"""Read and rewrite Iceberg's metadata files, to correct the times of commits and the addresses of files."""
