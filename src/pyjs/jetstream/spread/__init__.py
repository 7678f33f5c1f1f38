"""Streams of one server that are spread over several of its workers.

Every worker has its own store. A stream is in one of them, and its files there are all that is stored about it: at
the start, and after each change, the workers inform each other which streams they have (`directory`). The first
worker is the director: it chooses the worker of a new stream (`placing`), and passes on requests that create, change
or delete a stream, one at a time for each account. The worker with the stream answers them as a single server does.
So there is no second log that could contradict the stores, and the answers are those of a single process. All other
requests about a stream reach the worker that has it in the order of the client's messages, and that worker answers.
"""
