# SPDX-License-Identifier: Apache-2.0
"""What a rank does before its states are reduced, the same in every release: poll, fail on purpose, hold back."""

from __future__ import annotations

import os
import random
from typing import Any, Sequence

FAILED, TRANSFERRING, SUCCESS = 0, 3, 4
FAKE_HOST = "2.2.2.2"


def poll_each(pollers: Sequence[Any], variable: str) -> list[int]:
    """One state for each poller, in order. With the probability in the environment variable one is Failed unasked."""
    probability = float(os.environ.get(variable) or 0)
    states = []
    for poller in pollers:
        if probability > 0 and random.random() < probability:
            states.append(FAILED)
        else:
            states.append(int(poller.poll()))
    return states


def _is_fake(request: Any, server_args: Any) -> bool:
    host = request.bootstrap_host
    return host == FAKE_HOST or (host is None and server_args.disaggregation_transfer_backend == "fake")


def hold_until_landed(states: list[int], decode_reqs: Any, metadata_buffers: Any, server_args: Any) -> None:
    """The gate: in place, Success becomes Transferring where the stamp of the metadata is still 0. Does nothing unless
    all three are given."""
    if decode_reqs is None or metadata_buffers is None or server_args is None:
        return
    for place, decode_req in enumerate(decode_reqs):
        if states[place] != SUCCESS or _is_fake(decode_req.req, server_args):
            continue
        if metadata_buffers.bootstrap_room[decode_req.metadata_buffer_index, 0] == 0:
            states[place] = TRANSFERRING


def staged_states(decode_reqs: Sequence[Any], staging_handler: Any, variable: str) -> list[int]:
    """Advances what is being staged, polls all, then holds back what is still not staged."""
    for decode_req in decode_reqs:
        if decode_req.kv_receiver.require_staging and not staging_handler.is_done(decode_req):
            staging_handler.advance_scatter(decode_req)
    states = poll_each([decode_req.kv_receiver for decode_req in decode_reqs], variable)
    for place, decode_req in enumerate(decode_reqs):
        if states[place] != SUCCESS or not decode_req.kv_receiver.require_staging:
            continue
        if not staging_handler.is_done(decode_req):
            states[place] = TRANSFERRING
    return states


def pipeline_states(request_ids: Sequence[str], success: int, good: Sequence[str], bad: Sequence[str]) -> list[int | None]:
    """States by the lists that the pipeline stages agreed on. Communicates with nobody."""
    return [FAILED if one in bad else success if one in good else None for one in request_ids]
