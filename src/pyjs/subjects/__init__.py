"""Subjects: tokens, matching, transforms, and the subscription list."""
