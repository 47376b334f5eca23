"""`python -m benchmarks.server`: throughput of enqueues over HTTP and latency of event streams.

Clients are separate processes on raw sockets, so they need little CPU beside the server.
`http_connection` imports no Windlass code: the storms of `benchmarks/chaos` use it, too.
"""
