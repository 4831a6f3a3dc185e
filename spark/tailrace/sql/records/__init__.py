"""Write in SQL how records get to windows: a definition's steps, window assignment, and the records of later stages."""
