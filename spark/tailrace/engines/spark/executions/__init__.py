"""Take open windows through an epoch on Spark, in SQL alone or by the reference step."""
