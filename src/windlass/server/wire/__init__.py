"""What the server says: JSON in camelCase, made of core values here and nowhere else."""
