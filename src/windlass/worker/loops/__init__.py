"""The worker's background loops, one file each."""
