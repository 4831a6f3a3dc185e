"""Read and write rows of tables on Spark: a log's rows as declared, rows of a branch, and collected ledger rows."""
