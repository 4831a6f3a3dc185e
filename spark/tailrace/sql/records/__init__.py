"""Write records on their way to windows as SQL: the steps, the windows, and the records that a stage hands on."""
