"""The output of commands: reports, news, progress, and errors of usage."""
