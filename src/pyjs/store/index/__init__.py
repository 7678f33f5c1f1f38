"""The index of a store by sequence and by subject, and every search in it."""
