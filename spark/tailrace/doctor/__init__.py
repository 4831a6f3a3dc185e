"""The checks of `tailrace doctor`, beside the checks of an account: of the lake and of the machine."""
