/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine counts and measures. */
#ifndef CONVOY_XFER_COUNTERS_H
#define CONVOY_XFER_COUNTERS_H

#include "convoy/payload.h"

/* name, what it counts; bytes are named so. The one list of them, for JSON and Prometheus text (xfer/stats.h). */
#define CONVOY_XFER_COUNTERS(X)                                                                                        \
    X(staged, "Payloads staged.")                                                                                      \
    X(sent, "Sends that the receiver has taken.")                                                                      \
    X(loaded, "Loads that have their payload.")                                                                        \
    X(failed, "Transfers that failed.")                                                                                \
    X(aborted, "Transfers that were aborted.")                                                                         \
    X(released, "Transfers whose place is free again.")                                                                \
    X(offers, "Offers that came.")                                                                                     \
    X(offers_late, "Offers that came after all that is remembered of their time, dropped.")                            \
    X(offers_repeated, "Offers and orders that had come before, not done again.")                                      \
    X(replies_late, "Answers to what had ended already, dropped.")                                                     \
    X(asks, "Requests by descriptor that came.")                                                                       \
    X(asks_refused, "Requests by descriptor that were refused.")                                                       \
    X(asks_repeated, "Requests by descriptor that had come before, answered the same.")                                \
    X(rooms_repeated, "Grants of room that had come before, dropped.")                                                 \
    X(retries, "Messages said again since no answer came in time.")                                                    \
    X(refusals, "Sends that the receiver has refused.")                                                                \
    X(messages_dropped, "Messages given up since their peer takes none and no more fit.")                              \
    X(peers_connected, "Peers that connected.")                                                                        \
    X(peers_lost, "Peers that died or were cut off.")                                                                  \
    X(peers_closed, "Peers that said goodbye.")                                                                        \
    X(malformed, "Messages that break the protocol.")                                                                  \
    X(leases_expired, "Leases that ended by their deadline.")                                                          \
    X(checksum_errors, "Payloads whose checksum was wrong.")                                                           \
    X(copied_bytes, "Bytes copied by this engine.")                                                                    \
    X(lent_bytes, "Bytes that peers took out of this engine's pool.")                                                  \
    X(control_messages, "Messages said.")                                                                              \
    X(control_bytes, "Bytes of messages said.")                                                                        \
    X(raw_orders, "Orders to an address that were answered.")                                                          \
    X(raw_refused, "Orders to an address that were refused.")                                                          \
    X(reserve_refused, "Reservations that did not fit.")                                                               \
    X(pushed_bytes, "Bytes pushed to peers without shared memory.")                                                    \
    X(resizes, "Times that the pool went on in new memory.")                                                           \
    X(generations_handed, "Generations of the pool that peers have mapped.")                                           \
    X(generations_taken, "Generations of peers' pools mapped here.")                                                   \
    X(generations_refused, "Generations of the pool that peers could not map.")                                        \
    X(generations_late, "Messages about a generation that has ended, dropped.")                                        \
    X(overloaded, "Sends refused since as many as may wait were waiting.")

enum convoy_xfer_counter {
#define CONVOY_XFER_COUNTER_NUMBER(name, ...) CONVOY_XFER_COUNT_##name,
    CONVOY_XFER_COUNTERS(CONVOY_XFER_COUNTER_NUMBER)
#undef CONVOY_XFER_COUNTER_NUMBER
    CONVOY_XFER_COUNTER_COUNT,
};

#define CONVOY_XFER_PATHS (CONVOY_PATH_RMA + 1u) /* 0: what is staged is on no path yet */

/* Each by the path that was taken. name, what it is; where it begins and ends is in xfer/stats.c. */
#define CONVOY_XFER_PHASES(X)                                                                                          \
    X(stage, "Sender: from written by its producer to staged.")                                                        \
    X(reserve, "Sender, pushed: from staged to the offer; none where the offer came first.")                           \
    X(push, "Sender, pushed: from the offer to the receiver's word that it has all.")                                  \
    X(offer, "Sender, not pushed: from the offer to the receiver's word that it has all.")                             \
    X(ready, "Receiver: from the request to the news that its payload is ready.")                                      \
    X(load, "Receiver: from that news to the payload.")                                                                \
    X(release, "Sender: from the receiver's word that it has all to the return of the lease.")

enum convoy_xfer_phase {
#define CONVOY_XFER_PHASE_NUMBER(name, ...) CONVOY_XFER_PHASE_##name,
    CONVOY_XFER_PHASES(CONVOY_XFER_PHASE_NUMBER)
#undef CONVOY_XFER_PHASE_NUMBER
    CONVOY_XFER_PHASE_COUNT,
};

#endif
