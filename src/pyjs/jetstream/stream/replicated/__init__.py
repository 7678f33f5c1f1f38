"""The stream as a replicated state machine: what its leader proposes, and how every replica applies it."""
