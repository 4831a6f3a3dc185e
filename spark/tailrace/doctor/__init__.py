"""The checks that `tailrace doctor` makes of the lake and of the machine."""
