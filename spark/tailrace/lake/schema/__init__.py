"""Say what tables hold: contracts, their files, layouts and types, and how two of them differ."""
