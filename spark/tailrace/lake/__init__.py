"""The tables: their contracts, publishing commits to them, the lease, and reading them back without a JVM."""
