"""The commands, grouped by their effect: `run`, `look` and `change`. A command is loaded when it is called."""
