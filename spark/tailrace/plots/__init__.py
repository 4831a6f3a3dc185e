"""Draw panes as the Dataflow paper does, from tables or from a sample."""
