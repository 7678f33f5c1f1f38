"""Subjects: tokens, matching, the subscription list."""
