"""How one step of a delivery ends, and why a pump does."""

cdef enum Outcome:
    SENT                        # a message is on its way, or was given up: look again
    NOT_TAKEN                   # nobody took it: look again
    OUT_OF_BUDGET               # enough for one pump: come again
    AT_END                      # no more messages
    ACK_PENDING_FULL            # max_ack_pending
    NO_DEMAND                   # nobody asks
    HELD                        # too early, or too fast: see `Pacing.hold_until`
    DECLINED                    # no waiting request may be served now
