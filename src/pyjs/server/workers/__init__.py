"""Several processes as one server: the process that starts the others, and the workers."""
