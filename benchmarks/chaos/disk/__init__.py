"""Storms of the disk: the power goes, the disk is full, writes and syncs fail, a sync is deadly.

Every process of such a storm works on one SQLite file as ever, through a `seam` that sees each
change of a file before SQLite's own layer makes it. What it does there is told by the directory
`disk` of the storm's place. The ledgers and the register are on another disk, which is always well.
"""
