"""Read and write table rows on Spark: a log's rows as declared, a branch's rows, and ledger rows of replayed epochs."""
