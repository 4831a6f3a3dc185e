"""The command and its server in processes of their own."""
