"""How quickly the server takes jobs in, and how soon its streams tell: `python -m benchmarks.serving`.

What asks and what listens are processes of their own, on raw sockets, so that they cost little
beside the server. `sockets` imports no Windlass code: the laboratory reads streams with it, too.
"""
