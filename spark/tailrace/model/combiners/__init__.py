"""Say what is computed of a window: combiners whose accumulators merge in any order."""
