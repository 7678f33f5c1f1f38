"""The choice of the next message, of its receiver, and of the time of its delivery."""
