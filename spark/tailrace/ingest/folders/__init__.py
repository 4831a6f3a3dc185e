"""What is special to files that land in folders: the files that cannot be read, those passed over, and changes."""
