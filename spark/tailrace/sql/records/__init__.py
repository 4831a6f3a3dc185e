"""Write records as SQL on their way to windows: the steps, the windows, and the records that a stage passes on."""
