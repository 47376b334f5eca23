"""What a job is and may become: pure values and functions, no I/O.

Every rule about states, retries, progress and cancel is decided here, once. Stores apply what
these functions answer; they never decide.
"""
