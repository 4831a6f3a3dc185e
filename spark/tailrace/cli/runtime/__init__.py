"""The parts that commands share: their list, options, the process, and the Spark session."""
