"""Streams of one server that are spread over several of its workers.

Every worker has its own store. Each stream is in the store of one worker, and nothing about the stream is stored
elsewhere. At the start and after each change, the workers inform each other which streams they have (`directory`).
The first worker is the director: it chooses the worker of a new stream (`placing`), and passes on requests that
create, change or delete a stream, one at a time for each account. The worker with the stream answers such a request
as a single server does. So there is no second log that could contradict the stores, and the answers are those of a
single process. Any other request about a stream reaches the worker with the stream in order with the client's
messages, and that worker answers it.
"""
