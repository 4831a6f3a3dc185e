"""The read-only web page of a lake: it shows the tables' contents, uses only bounded reads, and writes nothing."""
