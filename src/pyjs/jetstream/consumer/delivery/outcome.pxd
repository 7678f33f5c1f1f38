"""Results of one step of a delivery, and reasons for the end of a pump."""

cdef enum Outcome:
    SENT                        # a message was sent or given up: continue
    NOT_TAKEN                   # no client received it: continue
    OUT_OF_BUDGET               # the limit of one pump: continue in the next turn
    AT_END                      # no more messages
    ACK_PENDING_FULL            # max_ack_pending
    NO_DEMAND                   # no request is waiting
    HELD                        # too early, or over the rate: wait until `Pacing.hold_until`
    DECLINED                    # no waiting request may be served now
