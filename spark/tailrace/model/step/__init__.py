"""The step that processes one epoch: the reference execution, against which all other executions are tested."""
