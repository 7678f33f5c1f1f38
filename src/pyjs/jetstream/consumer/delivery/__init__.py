"""Selection of the next message, its receiver and its time."""
