"""Dead letters: messages that a consumer gave up, copied to a stream (docs/dead-letters.md)."""
