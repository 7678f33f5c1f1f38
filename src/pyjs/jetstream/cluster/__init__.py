"""The replicated metadata of a cluster: which servers and streams there are, and which servers hold which stream.

Pure: driven by committed entries, asked by the API. Knows nothing of sockets, clocks, chance, files and the consensus
engine. The way of a request that creates a stream, on the leader of the metadata:

1. `rules` check its configuration, `state.check_create` looks for conflicts, `placement` chooses servers.
2. The request becomes a `StreamCreated` of `entries`, which is proposed with the limits of the account.
3. Every server applies it (`state.apply`): that alone decides. The leader answers from the result, or begins again.
4. `changes.duties` says what each server has to do: those that hold the stream open it.

`bootstrap` finds the first members of the metadata group, and `membership` lets it follow the servers. `moves` finds
other servers for streams; a `snapshot` replaces all entries before it. The modules `answers`, `reports` and
`advisories` hold what clients are told.
"""
