"""The struct of one publish, and the operations of the parser. Declarations only."""
from libc.stdint cimport uint32_t, uint64_t

cdef struct Msg:
    # One publish. Every pointer is valid only during the call that received it.
    const char* subject
    const char* reply           # reply_len is 0 if there is no reply
    const char* body            # headers, then payload
    const char* tail            # "[reply ][hlen ]size\r\n", followed by the body and CRLF unless `split`
    size_t tail_len
    uint32_t subject_len
    uint32_t reply_len
    uint32_t header_len         # 0: no headers
    uint32_t size               # header_len + payload length
    bint split                  # the body does not follow the tail in memory, since the server composed the message
    bint aliased                # receivers were found by a subject other than `subject` (JetStream deliveries)
    const char* found_by        # the subject by which receivers were found; set only if `aliased`
    uint32_t found_by_len
    void* via    # core.exchange.responses.Hop: the service imports that the message has passed; NULL: none
    uint64_t told               # one bit for each other server that already has the message or must not get it
    uint64_t number             # of an API request, equal at all servers; 0: none yet, see core.sink.Turn.number_of
    void* origin                # the publishing session (borrowed), NULL: the server itself
    void* whole                 # bytes object (borrowed) equal to `body`, which receivers may keep; NULL: they copy

cdef enum Op:
    OP_NEED                     # all of this read is parsed
    OP_MSG                      # PUB or HPUB, in Parser.msg
    OP_PING
    OP_PONG
    OP_SUB                      # arguments in Parser.line
    OP_UNSUB
    OP_CONNECT
    OP_INFO
    OP_OK
    OP_ERR
    OP_BAD                      # unknown verb: -ERR 'Unknown Protocol Operation' and close
    OP_BAD_ARGS                 # invalid arguments of a known verb: close without -ERR
    OP_LINE_TOO_LONG
    OP_TOO_BIG                  # larger than max_payload
    OP_NO_HEADERS               # HPUB without headers support
