"""Sample definitions and sample records, with which users can try out the library."""
