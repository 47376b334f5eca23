"""`windlass bench`: Windlass and its peers on SQLite, compared in one run.

All systems run the same no-op jobs with the same payload on the same disk, with a sync at each
commit, in new processes, and alternate round by round. `adapters/` has the interface of a
measured queue and one file per system. `child/` runs in the measured processes. `comparison` runs
all rounds, `round` one of them, and `results` computes medians and ratios. The project's benchmark
of peers on PostgreSQL and Redis uses the same parts.
"""
