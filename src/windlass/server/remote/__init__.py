"""The Store contract and the worker protocol for clients over HTTP."""
