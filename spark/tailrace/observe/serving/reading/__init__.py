"""What the pages read of a lake: bounded queries, and what they found laid out as rows and cells."""
