"""Storms: faults in real processes, with an independent checker.

Run it with `python -m benchmarks.chaos --help`. `ledger`, `fenced_register`, `checks/evidence` and
`checks/checker` import no Windlass code. They compare records written by producers and tasks with
the raw tables, after every process has ended.
"""
