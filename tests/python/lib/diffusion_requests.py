# SPDX-License-Identifier: Apache-2.0
"""Requests of the diffusion flow: tensors that their number decides, and the comparison of what came, bit by bit."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

DTYPES = (torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.uint8, torch.bool)
_KINDS = 6
LARGE = 3 << 20  # bytes; more than a small preallocated slot has
EXACT = 2 << 20  # bytes; just as many as it has


def _tensor(number: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits, NaN among them; bool has only its two values."""
    count = 1
    for extent in shape:
        count *= extent
    item = torch.empty(0, dtype=dtype).element_size()
    bits = (torch.arange(count * item, dtype=torch.int64) * 2654435761 + number * 97) >> 7
    if dtype is torch.bool:
        return (bits % 2 == 1).reshape(shape)
    return (bits % 256).to(torch.uint8).view(dtype).reshape(shape)


def fields(number: int) -> Dict[str, Any]:
    """The tensors of a request. Every sixth has none at all, one in 36 is large, one in 36 fills its slot."""
    kind, dtype = number % _KINDS, DTYPES[number % len(DTYPES)]
    if kind == 0:
        nothing: List[Dict[str, Any]] = [{}, {"a": None, "b": [None]}, {"a": torch.empty(0, 3)}]
        return nothing[number // _KINDS % 3]
    if kind == 1:
        return {str(one): _tensor(number, one, 3, 1 + number % 5) for one in DTYPES}
    if kind == 2:
        return {"list": [None, _tensor(number, dtype, 7), None, _tensor(number, torch.uint8, 513), None], "none": [None]}
    if kind == 3:
        return {"point": _tensor(number, dtype),
                "points": [_tensor(number, torch.float64), None, _tensor(number, torch.bool)],
                "no entry": torch.empty((0, 4), dtype=dtype), "absent": None}
    if kind == 4:
        return {"gaps": _tensor(number, dtype, 16, 6).t()[::2], "odd": _tensor(number, torch.uint8, 1),
                "behind it": _tensor(number, torch.float32, 31, 33)}
    if number % 36 == 11:
        return {"all of it": _tensor(number, torch.uint8, EXACT)}
    large = LARGE if number % 36 == 5 else 40_000
    return {"latents": _tensor(number, torch.uint8, large), "mask": _tensor(number, torch.bool, 2, 2)}


def scalars(number: int) -> Dict[str, Any]:
    """Scalar fields as the host sends them."""
    return {"seed": 2**63 + number, "prompt": "größe %d" % number, "_extra_guidance": 1.5, "_trace_state": None}


def _of_list(value: List[Optional[torch.Tensor]]) -> List[Optional[torch.Tensor]]:
    """Without its trailing holes."""
    last = max((i for i, one in enumerate(value) if one is not None), default=-1)
    return value[: last + 1]


def expected(number: int) -> Dict[str, Any]:
    """What arrives of a request: no field without a tensor, no trailing hole, and nothing when there is no byte."""
    given = {name: _of_list(v) if isinstance(v, list) else v for name, v in fields(number).items()}
    kept = {name: v for name, v in given.items() if v is not None and not (isinstance(v, list) and not v)}
    tensors = [one for v in kept.values() for one in (v if isinstance(v, list) else [v]) if one is not None]
    return kept if any(one.numel() for one in tensors) else {}


def _bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() < 100_000 else flat.view(torch.uint8).numpy().tobytes()


def _differs(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is not other
    return bool(one.dtype != other.dtype or one.shape != other.shape or _bits(one) != _bits(other))


def difference(number: int, tensors: Dict[str, Any], received: Dict[str, Any]) -> str:
    """What is wrong with what came of a request; empty = nothing."""
    wanted = expected(number)
    if sorted(tensors) != sorted(wanted):
        return "fields of request %d are %s, must be %s" % (number, sorted(tensors), sorted(wanted))
    for name, value in wanted.items():
        got, want = (v if isinstance(v, list) else [v] for v in (tensors[name], value))
        if isinstance(tensors[name], list) != isinstance(value, list) or len(got) != len(want):
            return "%s of request %d has %d tensors, must have %d" % (name, number, len(got), len(want))
        if any(_differs(one, other) for one, other in zip(got, want)):
            return "%s of request %d has other bits" % (name, number)
    wanted_scalars = scalars(number)
    if {key: received.get(key) for key in wanted_scalars} != wanted_scalars:
        return "scalars of request %d are %s" % (number, received)
    return ""
