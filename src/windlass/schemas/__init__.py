"""JSON schemas of jobs, queues, schedules and more: the HTTP API and `--json` have the same."""
