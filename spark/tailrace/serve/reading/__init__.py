"""Read a lake for the pages, with limits on time, memory and rows."""
