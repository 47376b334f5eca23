"""The job row and the values it is made of."""
