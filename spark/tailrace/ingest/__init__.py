"""Read a source's records, plain ones in this process and the rest by Spark, and land them."""
