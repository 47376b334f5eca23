"""The commands of `windlass`, one file each."""
