"""Definitions that are held to a claim, random or few, with the records that they read."""
