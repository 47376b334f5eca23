"""Reads for users: queue rates, failure groups, flow graphs, diagnosis of waiting jobs."""
