"""The lake's tables: their contracts, their commits, the lease, and reading the tables without a JVM."""
