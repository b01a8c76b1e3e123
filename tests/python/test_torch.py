#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Groups made from process groups of torch give what gloo gives."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

from lib import gang, runner  # noqa: E402
from lib.runner import expect_equal  # noqa: E402

try:
    import torch  # noqa: F401
except ImportError:
    runner.skip_program("torch is not installed")

from lib import torch_calls as calls  # noqa: E402


def test_a_world_of_one_reduces_like_gloo() -> None:
    expect_equal(gang.run(1, calls.reduces_like_gloo, args=(1,)), [["torch:0"]], "names")


def test_a_world_of_two_reduces_like_gloo() -> None:
    expect_equal(gang.run(2, calls.reduces_like_gloo, args=(2,)), [["torch:0-1"]] * 2, "names")


def test_a_world_of_four_and_its_sub_groups_reduce_like_gloo() -> None:
    names = gang.run(4, calls.reduces_like_gloo, args=(3,), groups=gang.grid_groups(4, 2, 2))
    expect_equal(names[0], ["torch:0-1", "torch:0,2", "torch:0-3"], "names at rank 0")
    expect_equal(names[3], ["torch:2-3", "torch:1,3", "torch:0-3"], "names at rank 3")


def test_a_tensor_is_reduced_in_place_and_set_up_once() -> None:
    gang.run(2, calls.reduces_in_place)


def test_what_is_refused_sends_nothing() -> None:
    gang.run(2, calls.refuses_tensors)


def test_rows_are_gathered_like_gloo() -> None:
    gang.run(2, calls.rows_like_gloo, args=(1,))


def test_rows_of_two_members_per_rank_are_gathered_like_gloo() -> None:
    gang.run(4, calls.rows_like_gloo, args=(2,))


def test_a_process_group_that_was_made_again_gets_a_fresh_group() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gang.run(2, calls.keeps_groups, args=(os.path.join(folder, "again"),))


if __name__ == "__main__":
    runner.main(globals())
