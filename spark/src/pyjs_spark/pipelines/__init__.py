"""Pipelines between streams and files that are used as they are."""
