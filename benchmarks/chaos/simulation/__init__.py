"""Simulation of workers, producers and faults in virtual time; a seed fixes all of it.

The worker's own code runs unchanged (`Worker` with its fetcher, settler, keeper, sweeper and other
loops). The simulation replaces its environment: event loops, time, the network to the store, and
processes, which can be killed, frozen or delayed at any step.
"""
