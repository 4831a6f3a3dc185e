"""Say what tables need to stay small, and what dead writers left."""
