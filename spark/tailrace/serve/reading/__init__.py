"""The pages' reads of a lake: bounded queries, and their results as rows and cells."""
