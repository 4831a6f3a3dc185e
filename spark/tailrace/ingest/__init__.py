"""Take raw records in, in this process: what is plainly as a log declares it. Whatever else there is, Spark judges."""
