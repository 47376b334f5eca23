"""`windlass bench`: Windlass and its peers on SQLite, measured side by side in one run.

Every side does the same: no-op jobs with the same payload, on the same disk, each commit synced,
producers and workers in fresh processes, the sides taking turns round by round. `side` is what each
of them keeps to, `peers/` has one file per side; `child` is the program that each process runs;
`rounds` is one round of one side; `figures` are the medians, the ratios and the targets. The
project's own benchmark of peers on PostgreSQL and Redis is made of the same parts.
"""
