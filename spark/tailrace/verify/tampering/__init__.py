"""Check whether anything other than Tailrace changed commits or files; the rows of the tables are not compared."""
