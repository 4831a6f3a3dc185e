"""What a lake or a stream talks to, on this machine: clouds, catalogs, brokers, clusters."""
