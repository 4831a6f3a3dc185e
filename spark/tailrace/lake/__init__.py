"""The tables: their contracts, how a commit is published, the lease, and reading them back without a JVM."""
