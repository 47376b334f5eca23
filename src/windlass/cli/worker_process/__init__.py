"""The process of a worker: signals, shutdown steps, output, restart and reload."""
