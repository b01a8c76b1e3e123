/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled-in faults for our own tests; the release build has none of it.
 *
 * Kill points: places where a process can die at a bad moment. Named in one list, so that a test can walk it and assert
 * that each was reached. CONVOY_KILL_POINT=<name>[:<n>] in the environment kills the process when it passes the point
 * for the n-th time (1 = the first), CONVOY_STOP_POINT stops it there; CONVOY_POINT_HITS=<file> appends the name of each
 * point when it is first passed.
 *
 * Messages: CONVOY_TEST_MESSAGE=<drop|twice|late>:<n> in the environment does that to the n-th control message (1 = the
 * first) that a transfer engine says; late = behind the one after it, late:<n>:<k> = behind the k-th one after it.
 * drop:<TYPE>[,<TYPE>] drops each one of these types for as long as it is set.
 *
 * Mutations: breaks of the protocol, each of which some test must notice. CONVOY_MUTATION=<name> switches one on.
 */
#ifndef CONVOY_CORE_FAULT_H
#define CONVOY_CORE_FAULT_H

#include <stdbool.h>

#define CONVOY_ROUND_POINT_LIST(X)                                                                                     \
    X(open_started)           /* before the rendezvous */                                                              \
    X(open_met)               /* members have met, nothing is shared yet */                                            \
    X(open_joined)            /* holds the segment, the others may not */                                              \
    X(open_finished)          /* last step done, not returned yet */                                                   \
    X(publish_before_swap)    /* payload written, number not */                                                        \
    X(publish_after_swap)     /* contributed, nobody woken yet */                                                      \
    X(collect_complete)       /* all have arrived, result not made */                                                  \
    X(round_ended)            /* result made, not returned yet */                                                      \
    X(seal_before_swap)       /* about to give up on a round */                                                        \
    X(seal_after_swap)                                                                                                 \
    X(lead_before_send)       /* leader has merged, partial not sent */                                                \
    X(lead_sent_one)          /* sent to one host, not to the next */                                                  \
    X(lead_after_send)                                                                                                 \
    X(lead_before_result)     /* leader has everything, result not in the segment */                                   \
    X(lead_after_result)                                                                                               \
    X(reopen_before_switch)   /* one host: proposal written, word not swapped */                                       \
    X(reopen_after_switch)                                                                                             \
    X(reopen_query)           /* across hosts: coordinator has asked */                                                \
    X(reopen_promised)        /* a leader has written a promise, not answered */                                       \
    X(reopen_proposed)        /* coordinator has proposed */                                                           \
    X(reopen_before_commit)   /* all have answered, nobody has switched */                                             \
    X(close_before_goodbye)                                                                                            \
    X(close_after_goodbye)

#define CONVOY_TRANSFER_POINT_LIST(X)                                                                                  \
    X(dial_hello)             /* connecting: strangers no more, nothing is known of each other */                      \
    X(dial_introduced)                                                                                                 \
    X(dial_channel)           /* local socket open, no file handed over */                                             \
    X(dial_files)             /* own files handed over, the peer's not there */                                        \
    X(dial_joined)            /* a peer, not returned yet */                                                           \
    X(door_introduced)        /* the listener has answered */                                                          \
    X(door_files)             /* it holds the dialer's files */                                                        \
    X(door_joined)            /* has a peer that does not know it */                                                   \
    X(far_dial_address)       /* own address sent, the peer's not there */                                             \
    X(far_dial_joined)                                                                                                 \
    X(far_door_joined)        /* address known, own not sent */                                                        \
    X(stage_copied)           /* bytes are staged, the state does not say so */                                        \
    X(offer_before_put)       /* a reader is counted, nobody knows of it */                                            \
    X(offer_after_put)                                                                                                 \
    X(withdraw_after_put)                                                                                              \
    X(load_copied)            /* before TAKEN */                                                                       \
    X(taken_before_put)                                                                                                \
    X(taken_after_put)                                                                                                 \
    X(back_before_put)                                                                                                 \
    X(back_after_put)                                                                                                  \
    X(returned_before_free)   /* BACK is there, the reader still counted */                                            \
    X(ask_after_put)                                                                                                   \
    X(grant_before_put)       /* lent, the asker does not know */                                                      \
    X(grant_after_put)                                                                                                 \
    X(raw_after_put)                                                                                                   \
    X(raw_copying)            /* the slot is held by the copy */                                                       \
    X(raw_copied)                                                                                                      \
    X(raw_done_before_put)                                                                                             \
    X(raw_done_after_put)                                                                                              \
    X(room_before_put)        /* without shared memory: a landing is open, nobody knows */                             \
    X(room_after_put)                                                                                                  \
    X(push_granted)           /* before the first chunk */                                                             \
    X(push_chunk)             /* one more chunk handed over */                                                         \
    X(push_landed)            /* one more chunk there */                                                               \
    X(push_ended)             /* all handed over and answered */                                                       \
    X(goodbye_before_put)                                                                                              \
    X(goodbye_after_put)

#define CONVOY_MOVE_POINT_LIST(X)                                                                                      \
    X(move_halted)            /* nothing new begins */                                                                 \
    X(move_still)             /* nothing is under way, threads still run */                                            \
    X(move_frozen)                                                                                                     \
    X(move_exported)                                                                                                   \
    X(move_imported)          /* in the new build; everything is still the old one's */                                \
    X(move_resumed)           /* everything is the new one's */                                                        \
    X(move_retired)

#define CONVOY_POINT_LIST(X) CONVOY_ROUND_POINT_LIST(X) CONVOY_TRANSFER_POINT_LIST(X) CONVOY_MOVE_POINT_LIST(X)

#define CONVOY_MUTATION_LIST(X)                                                                                        \
    X(one_cell_for_two)            /* both parities share a cell */                                                    \
    X(number_before_payload)                                                                                           \
    X(publish_overwrites_seal)                                                                                         \
    X(no_seal)                                                                                                         \
    X(no_reread_after_failed_swap)                                                                                     \
    X(no_wake)                                                                                                         \
    X(votes_not_merged)                                                                                                \
    X(tags_ignored)                                                                                                    \
    X(fingerprint_ignored)                                                                                             \
    X(cold_line_stale)             /* the cold line is written once and never again */                                 \
    X(epoch_not_in_fingerprint)                                                                                        \
    X(abandon_seals_nothing)                                                                                           \
    X(dead_not_noticed)                                                                                                \
    X(timeout_ends_operation)                                                                                          \
    X(reopen_keeps_generation_of_lost) /* survivors forget who is lost */                                              \
    X(round_number_not_repeated)   /* the failed round's number is skipped after reopen */                             \
    X(error_row_ignored)                                                                                               \
    X(goodbye_not_said)                                                                                                \
    X(no_request_by_successor)                                                                                         \
    X(successor_never_leads)                                                                                           \
    X(second_hop_skipped)                                                                                              \
    X(result_not_handed_over)                                                                                          \
    X(reopen_not_frozen)           /* a host that has answered may still complete a round */                           \
    X(promise_not_completed)                                                                                           \
    X(majority_ignored)                                                                                                \
    X(gate_ignored)                                                                                                    \
    X(staging_not_demoted)                                                                                             \
    X(late_record_lost)            /* a round that was not written yet is forgotten when the next way is another */   \
    X(kept_record_lost)            /* the same for one that was put aside */                                           \
    X(agreed_stale)                /* keyed short rounds go on referring to the first identities */                    \
    X(agreed_overwritten)          /* what they refer to is merged over */                                             \
    X(packed_halves_swapped)       /* states by the half byte are taken apart the other way round */                   \
    X(min_is_max)                                                                                                      \
    X(absent_is_success)           /* keyed: who does not list a request counts as done */                             \
    X(decided_forgotten)                                                                                               \
    X(level_two_takes_own)         /* instead of what level one has agreed on */                                       \
    X(mask_ignored)                                                                                                    \
    X(fallback_zero)               /* a missing row is zeros */                                                        \
    X(mac_not_checked)                                                                                                 \
    X(epoch_not_checked)           /* at the rendezvous */                                                             \
    X(block_not_merged)                                                                                                \
    X(stale_handle_taken)                                                                                              \
    X(generation_kept)             /* when an entry is used again */                                                   \
    X(freed_while_read)                                                                                                \
    X(deadline_frees_all)          /* what is read, too */                                                             \
    X(dead_reader_kept)                                                                                                \
    X(others_dropped)              /* a dead peer takes the references of others along */                              \
    X(part_kept)                   /* of a reservation that does not fit */                                            \
    X(exhausted_is_never)          /* as if it were larger than the pool */                                            \
    X(prealloc_for_two)            /* a preallocated slot */                                                           \
    X(prealloc_shrinks)            /* goes back with the size that was used */                                         \
    X(reserved_part_kept)          /* the same at the engine */                                                        \
    X(filled_slot_open)            /* for raw writes */                                                                \
    X(written_bytes_added)         /* a piece that comes twice stands for one that is missing */                       \
    X(reader_not_counted)          /* a release frees under it */                                                      \
    X(swept_in_flight)             /* a staged lease expires under a send */                                           \
    X(overload_ignored)            /* any number of sends may wait */                                                  \
    X(peer_room_ignored)           /* a full peer holds up the others */                                               \
    X(waiting_bytes_returned)      /* a stage that is released while its send waits for room */                        \
    X(offer_taken_twice)                                                                                               \
    X(request_ignored)                                                                                                 \
    X(earlier_attempt_kept)        /* its offer stays beside that of the next */                                       \
    X(cookie_ignored)              /* any answer is that to this order */                                              \
    X(checksum_not_compared)                                                                                           \
    X(attempt_ignored)                                                                                                 \
    X(released_is_lent)            /* to who asks by a descriptor */                                                   \
    X(incarnation_ignored)         /* whoever is at the port */                                                        \
    X(json_holes_lost)             /* a list's length does not go with the hosts' message */                           \
    X(share_not_awaited)           /* transfer: a generation is named to peers that do not have it yet */              \
    X(forget_not_said)             /* they keep it after its end */                                                    \
    X(old_ends_at_once)            /* its memory goes while something of it is taken */                                \
    X(token_not_compared)                                                                                              \
    X(process_not_proven)          /* a pool is read at any process */                                                 \
    X(taken_before_copied)                                                                                             \
    X(back_not_said)                                                                                                   \
    X(withdraw_ignored)                                                                                                \
    X(abort_not_told)                                                                                                  \
    X(any_target_taken)                                                                                                \
    X(push_copied_twice)           /* said again, while it waits or runs */                                            \
    X(first_part_checked)          /* of a list, and no other */                                                       \
    X(closed_not_believed)         /* that it has given back all */                                                    \
    X(parting_not_said)            /* what crosses a disconnect is not given back */                                   \
    X(unanswered_is_freed)         /* what the peer may still read after a raw order timed out */                      \
    X(copying_slot_given)          /* to the next one, while it is still written */                                    \
    X(device_event_not_awaited)                                                                                        \
    X(device_lost_is_given)        /* memory of which nobody knows whether the device has stopped */                   \
    X(strides_ignored)                                                                                                 \
    X(completion_told_again)                                                                                           \
    X(landing_closed_busy)         /* a chunk is on its way into memory that is given away */                          \
    X(put_not_said)                /* that what was put is there */                                                    \
    X(put_not_quarantined)         /* a slot that a peer may put into is given away */                                 \
    X(mark_not_followed)           /* bytes are pushed before they are staged */                                       \
    X(number_before_entry)                                                                                             \
    X(produced_believed)           /* instead of the entry's own number */                                             \
    X(overlap_not_checked)                                                                                             \
    X(known_shape_ignored)                                                                                             \
    X(end_not_checked)                                                                                                 \
    X(last_holes_lost)             /* a list ends behind its last tensor */

enum convoy_fault_fate { CONVOY_FATE_USUAL = 0, CONVOY_FATE_DROP, CONVOY_FATE_TWICE, CONVOY_FATE_LATE };

#ifdef CONVOY_FAULTS
void convoy_fault_point(const char *name);
/* type: its name. */
enum convoy_fault_fate convoy_fault_message(unsigned long long number, const char *type);
/* Whether the message that is late has waited for long enough once this one is out. */
bool convoy_fault_is_due(unsigned long long number);
#define CONVOY_POINT(name) convoy_fault_point(#name)
#else
#define CONVOY_POINT(name) ((void)0)
static inline enum convoy_fault_fate convoy_fault_message(unsigned long long number, const char *type)
{
    (void)number;
    (void)type;
    return CONVOY_FATE_USUAL;
}
static inline bool convoy_fault_is_due(unsigned long long number)
{
    (void)number;
    return true;
}
#endif

#ifdef CONVOY_MUTATIONS
bool convoy_fault_mutated(const char *name);
#define CONVOY_MUTATED(name) convoy_fault_mutated(#name)
#else
#define CONVOY_MUTATED(name) false
#endif

#endif
