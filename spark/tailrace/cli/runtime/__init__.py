"""Hold what commands share: the list of them, options, the process, and the Spark session."""
