"""The command `angarium`."""
