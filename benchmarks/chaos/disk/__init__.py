"""Storms of the disk: power cuts, a full disk, failing writes and syncs, crashes at a sync.

Every process of such a storm uses one SQLite file through `vfs_hooks`, which intercept each change
of a file before SQLite's VFS makes it. The directory `disk` of the storm configures the faults. The
ledgers and the register are on another disk without faults.
"""
