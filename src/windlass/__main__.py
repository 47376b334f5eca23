"""`python -m windlass` is the command line."""

from windlass.cli import main

main()
