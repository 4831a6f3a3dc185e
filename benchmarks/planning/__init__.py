"""What a stream takes on larger clusters: measured small, fitted, and simulated at 10, 100 and 1,000 cores."""
