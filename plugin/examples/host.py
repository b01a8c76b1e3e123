# SPDX-License-Identifier: Apache-2.0
import sys

import convoy


def main(own: int, port: str) -> None:  # usage: host.py RANK PORT, once with rank 0 and once with rank 1
    success, transferring = convoy.poll.SUCCESS, convoy.poll.TRANSFERRING
    mine = [success, success if own == 0 else transferring]
    with convoy.load() as plugin:  # no path: CONVOY_LIBRARY, then a search
        with plugin.context(secret=b"ours") as context:
            with context.group("tp", members=2, rank=own, rendezvous="tcp://127.0.0.1:" + port) as pair:
                first, second = pair.reduce(mine)
    print("rank %d: on the slowest rank request 0 is in state %d, request 1 in state %d" % (own, first, second))


if len(sys.argv) != 3:
    sys.exit("usage: host.py RANK PORT")
try:
    main(int(sys.argv[1]), sys.argv[2])
except convoy.ConvoyError as error:
    sys.exit("rank %s: %s" % (sys.argv[1], error))
