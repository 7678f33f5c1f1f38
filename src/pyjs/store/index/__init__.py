"""What a store holds, by sequence and by subject, and every search in it."""
