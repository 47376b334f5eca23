"""Pure decisions about a job: transitions, outcomes, retries, enqueue rules."""
