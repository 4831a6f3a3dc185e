"""Draw panes as the paper does, of tables or of a sample."""
