"""Hold what a user declares: logs, pipelines, computations and maps, how they are checked and what they mean."""
