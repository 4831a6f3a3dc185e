"""Read a source's records and write them to a log: this process parses plain records, and Spark parses all others."""
