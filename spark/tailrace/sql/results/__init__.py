"""Write the answers of finished input as SQL, and the rows that a backfill makes from them."""
