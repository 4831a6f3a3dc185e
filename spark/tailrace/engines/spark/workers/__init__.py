"""Have the executors' Python do work, and take rows over from Spark's processes to this one, and back."""
