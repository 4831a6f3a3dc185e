"""Observation, for people and their tools: what runs report of themselves, and the paper's plot of panes."""
