"""Options of reading and writing, checked."""
