"""The command line: `tailrace stream | backfill | explain | status | panes | audit | tables`."""
