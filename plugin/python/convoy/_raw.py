# SPDX-License-Identifier: Apache-2.0
"""Pieces of a raw transfer as the plugin's structs."""

from __future__ import annotations

from ctypes import addressof, sizeof
from typing import Any, Sequence, Tuple

from convoy import _abi, errors

Piece = Tuple[int, int, int]  # source address here, target address there, bytes
_LARGEST = 2**64


def raw_of(peer: int, pieces: Sequence[Piece]) -> Tuple[_abi.Raw, Any]:
    """The struct, and what it points to."""
    rows = (_abi.RawPiece * max(1, len(pieces)))()
    for index, (row, piece) in enumerate(zip(rows, pieces)):
        source, target, size = piece
        if min(piece) < 0 or max(piece) >= _LARGEST:
            raise errors.InvalidArgument("pieces[%d] is %r; addresses and bytes are from 0 to 2**64 - 1" % (index, piece))
        row.source, row.target, row.bytes = source, target, size
    return _abi.Raw(struct_size=sizeof(_abi.Raw), peer=peer, pieces=addressof(rows), piece_count=len(pieces),
                    piece_stride=sizeof(_abi.RawPiece)), rows
