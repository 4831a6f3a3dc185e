"""Read a source's records and land them: this process reads plain records, and Spark reads all other records."""
