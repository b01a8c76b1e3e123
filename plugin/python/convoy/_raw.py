# SPDX-License-Identifier: Apache-2.0
"""Pieces of a raw transfer as the plugin's structs."""

from __future__ import annotations

from ctypes import addressof, sizeof
from typing import Any, Sequence, Tuple

from convoy import _abi, errors
from convoy._buffers import U64_MAX, integer

Piece = Tuple[int, int, int]  # source address here, target address there, bytes


def raw_of(peer: int, pieces: Sequence[Piece]) -> Tuple[_abi.Raw, Any]:
    """The struct, and what it points to."""
    rows = (_abi.RawPiece * max(1, len(pieces)))()
    for index, (row, piece) in enumerate(zip(rows, pieces)):
        try:
            row.source, row.target, row.bytes = [integer(number, "", 0, U64_MAX) for number in piece]
        except (TypeError, ValueError):
            raise errors.InvalidArgument("pieces[%d] is %r; source, target and bytes are needed, from 0 to 2**64 - 1" % (
                index, piece)) from None
    return _abi.Raw(struct_size=sizeof(_abi.Raw), peer=peer, pieces=addressof(rows), piece_count=len(pieces),
                    piece_stride=sizeof(_abi.RawPiece)), rows
