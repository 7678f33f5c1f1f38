"""Which message goes out next, to whom, and when."""
