"""Sample definitions and sample records for trying things out."""
