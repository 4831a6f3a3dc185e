"""Write the processing of records in SQL: a definition's steps, window assignment, and the records of later stages."""
