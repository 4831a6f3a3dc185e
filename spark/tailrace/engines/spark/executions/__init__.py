"""Advance open windows by one epoch on Spark, either entirely in SQL or with the model's step in Python."""
