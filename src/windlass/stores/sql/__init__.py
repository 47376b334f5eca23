"""What SQL stores share: named queries and migrations. No statement is built from strings."""
