"""The crash laboratory: storms of faults over real processes, judged by an independent checker.

`python -m benchmarks.chaos --help` runs it. `ledger`, `register`, `evidence` and `checker` import
no Windlass code: what they hold against the tables was written down by producers and tasks
themselves, and the tables are read raw, after every process has ended.
"""
