"""Results of one step of a delivery, and reasons why a pump ends."""

cdef enum Outcome:
    SENT                        # a message was sent, or had reached max_deliver: continue
    NOT_TAKEN                   # no client received it: continue
    OUT_OF_BUDGET               # the limit of one pump is reached: continue in the next turn
    AT_END                      # no more messages match
    ACK_PENDING_FULL            # max_ack_pending
    NO_DEMAND                   # no request waits
    HELD                        # too early, or above the rate: wait until `Pacing.hold_until`
    DECLINED                    # no waiting request may get a message now
