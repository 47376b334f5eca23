"""Reads that answer people's questions: queue rates, failures, flow graphs, why a job waits."""
