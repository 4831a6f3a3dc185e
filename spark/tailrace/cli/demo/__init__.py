"""The guided tour of Tailrace, which `tailrace demo` runs."""
