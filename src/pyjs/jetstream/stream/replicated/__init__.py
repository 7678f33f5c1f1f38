"""The stream as a replicated state machine: proposals of its leader, and their application by every replica."""
