"""The checks of the lake and of the machine by `tailrace doctor`."""
