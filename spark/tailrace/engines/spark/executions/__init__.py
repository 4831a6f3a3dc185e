"""Process an epoch's open windows on Spark, with SQL alone or with the reference step in Python."""
