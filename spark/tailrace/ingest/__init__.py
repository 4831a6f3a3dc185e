"""Take a source's records in: what is plain is read in this process, the rest by Spark; then they are landed."""
