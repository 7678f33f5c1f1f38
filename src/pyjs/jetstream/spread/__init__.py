"""The streams of one server in several of its workers.

Every worker has a store of its own. A stream is in one of them, and the files there are all that is stored about it:
the workers tell each other at the start, and after each change, which streams they hold (`directory`). The first
worker directs: it chooses the worker of a new stream (`placing`) and passes requests on that create, change or delete
a stream, one at a time for each account. The worker with the stream answers them as a single server does. So there is
no second log that could contradict the stores, and no other answer than that of one process. All other requests about
a stream reach the worker that holds it in the order of the client's messages, and that worker answers.
"""
