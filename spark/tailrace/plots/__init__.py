"""Draw panes as the paper does, from tables or from a sample."""
