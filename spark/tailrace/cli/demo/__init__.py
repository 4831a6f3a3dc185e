"""The guided tour of Tailrace, which `make demo` runs."""
