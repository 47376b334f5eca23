"""Workers, producers and their faults in virtual time, on one thread: a seed is a whole history.

The worker's own code runs unchanged (`Worker` with its fetcher, settler, keeper, sweeper and the
rest). What is simulated is what surrounds it: event loops, time, the line to the store, and the
processes, which can be killed, frozen or held up at any step.
"""
