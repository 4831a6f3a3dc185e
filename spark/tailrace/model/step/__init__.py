"""The step of an epoch over windows and keys: the reference execution, with which every other execution is compared."""
