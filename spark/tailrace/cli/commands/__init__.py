"""The commands, in three groups by their effect: `run`, `look` and `change`.

The module of a command is imported only when the command is called.
"""
