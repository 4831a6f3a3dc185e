"""Triggers, which say when in processing time: simple ones, those made of others, and the check of custom ones."""
