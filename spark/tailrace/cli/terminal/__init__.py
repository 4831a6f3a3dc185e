"""The output of commands: reports, messages, progress, and errors of usage."""
