"""What can be asked of the server: one file for each noun, and the table of all of them."""
