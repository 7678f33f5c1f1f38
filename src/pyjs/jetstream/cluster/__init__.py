"""The replicated metadata of a cluster: which servers and streams there are, and which servers hold which stream.

Pure: driven by committed entries, asked by the API. Knows nothing of sockets, clocks, chance, files and the consensus
engine. `entries` are what the group agrees on, `state` is what they lead to, `changes` what a node has to do then.
"""
