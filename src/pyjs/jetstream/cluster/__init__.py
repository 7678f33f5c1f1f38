"""The replicated metadata of a cluster: its servers, its streams, and the servers that hold each stream.

Committed entries change the metadata, and the API reads it. This package uses no sockets, clocks, random numbers or
files, and not the consensus engine. A request that creates a stream takes these steps on the leader of the metadata:

1. `rules` check its configuration, `state.check_create` looks for conflicts, `placement` chooses servers.
2. The request becomes a `StreamCreated` entry (`entries`), which is proposed with the limits of the account.
3. Every server applies the entry (`state.apply`); only this decides the outcome. If it is STALE, the leader retries.
4. The result lists `changes`, from which each server derives its work: the servers that hold the stream open it.

`bootstrap` finds the first members of the metadata group, and `membership` adapts the group to the servers. `moves`
chooses other servers for streams; a `snapshot` replaces all entries before it. The modules `answers`, `reports` and
`advisories` compose the output for clients.
"""
