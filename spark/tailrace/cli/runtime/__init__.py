"""The parts that commands share: the list of commands, common options, process start-up, and the Spark session."""
