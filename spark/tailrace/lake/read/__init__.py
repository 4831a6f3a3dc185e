"""Read the lake's tables without a JVM: for users, and for the processes that update the tables of answers."""
