/* SPDX-License-Identifier: Apache-2.0 */
/* Wire versions that this build speaks: frames of the rendezvous, cells of the segment, messages of the links. */
#ifndef CONVOY_NET_WIRE_H
#define CONVOY_NET_WIRE_H

#define CONVOY_WIRE_MIN 1
#define CONVOY_WIRE_MAX 1

#endif
