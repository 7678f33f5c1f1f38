"""Stores of messages by sequence: in files and in memory."""
