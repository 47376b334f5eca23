"""`python -m benchmarks.serving`: how quickly jobs are taken in, and how soon streams tell.

What asks and what listens are processes of their own, on raw sockets, so that they cost little
beside the server. `sockets` imports no Windlass code: the laboratory reads streams with it, too.
"""
