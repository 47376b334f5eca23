"""Code that runs inside the measured processes; each process executes one of the `roles`."""
