"""Write as SQL the answers of finished input, and the rows that a backfill makes of them."""
