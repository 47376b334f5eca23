"""Values and decisions of jobs: pure functions, no I/O.

All rules about states, retries, progress and cancel are here. Stores apply the returned decisions;
they never decide.
"""
