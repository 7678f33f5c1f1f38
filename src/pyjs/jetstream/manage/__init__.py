"""Creation, update, deletion and recovery of an account's streams and consumers."""
