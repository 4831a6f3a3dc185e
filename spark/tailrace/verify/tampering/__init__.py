"""Check whether commits or files were changed by anything other than Tailrace; the tables' rows are not compared."""
