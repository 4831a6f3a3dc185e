"""Write records on their way to windows as SQL: the steps, the windows, and what a stage hands on."""
