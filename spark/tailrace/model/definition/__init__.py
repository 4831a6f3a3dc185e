"""The definitions that users declare (pipelines, computations, maps, joins), with their validation and semantics."""
