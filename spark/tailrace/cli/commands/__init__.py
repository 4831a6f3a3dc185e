"""Hold the commands, by what they do; each is loaded when it is called."""
