"""Read and write table rows on Spark: a log's declared columns, a branch's rows, and ledger rows of replayed epochs."""
