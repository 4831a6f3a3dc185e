"""The steps of an epoch over windows and keys: the reference with which every other execution is compared."""
