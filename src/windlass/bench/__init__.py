"""`windlass bench`: Windlass and its peers on SQLite, measured side by side in one run.

Each side is one job queue. All sides run the same no-op jobs with the same payload on the same
disk, with a sync at each commit, in new processes, and alternate round by round. `side` is the
interface of a side, and `peers/` has one file per side. `child` is the program of each process,
`round` runs one round of one side, and `results` computes medians, ratios and targets. The
project's benchmark of peers on PostgreSQL and Redis uses the same parts.
"""
