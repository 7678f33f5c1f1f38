"""The stream as a replicated state machine: the leader proposes entries, and every replica applies them."""
