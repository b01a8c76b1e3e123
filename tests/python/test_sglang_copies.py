#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is read from the host's code, and the copies of it that run with another collective in them."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any, Callable, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import standin  # noqa: E402
from lib import runner  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402


def _function(source: str, name: str = "f") -> Any:
    module = types.ModuleType("scene_code")
    exec("import torch\nimport torch.distributed as dist\nfrom torch.distributed import all_reduce\n" + source,
         module.__dict__)
    return vars(module)[name]


def _refusal(source: str) -> str:
    from convoy.sglang import _code

    function = _function(source)
    return str(expect_raises(_code.Unknown, lambda: _code.check_collectives(function, ("all_reduce",), (("all_reduce", "MIN"),))))


def test_sglang_code_that_reduces_in_a_known_way_passes() -> None:
    from convoy.sglang import _code

    for body in ("dist.all_reduce(x, op=dist.ReduceOp.MIN, group=g)",
                 "torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MIN, group=g)",
                 "return [dist.all_reduce(y, dist.ReduceOp.MIN) for y in x]"):
        _code.check_collectives(_function("def f(x, g):\n    " + body), ("all_reduce",), (("all_reduce", "MIN"),))


def test_sglang_code_that_reduces_in_another_way_does_not() -> None:
    cases = {
        "dist.all_reduce(x, op=dist.ReduceOp.MAX)": "ReduceOp.MIN",
        "dist.all_reduce(x, op=dist.ReduceOp.MIN); dist.barrier()": "barrier",
        "return x": "found none",
        "all_reduce(x, dist.ReduceOp.MIN)": "as a global",
        "d = dist; d.all_reduce(x, d.ReduceOp.MIN)": "by attribute",
        "t = torch.distributed; t.all_reduce(x, t.ReduceOp.MIN)": "by attribute",
        "import torch.distributed as own; own.all_reduce(x, own.ReduceOp.MIN)": "import of torch",
        "global seen; seen = 1; dist.all_reduce(x, dist.ReduceOp.MIN)": "seen",
        "globals(); dist.all_reduce(x, dist.ReduceOp.MIN)": "globals",
    }
    for body, part in cases.items():
        text = _refusal("def f(x):\n    " + body)
        assert part in text, (body, text)


def test_sglang_parameters_are_compared_by_name_and_kind() -> None:
    from convoy.sglang import _code

    good = ("def f(a, b): pass", "def f(a, b, d=1): pass", "def f(a, b, c=1, d=1): pass")
    bad = ("def f(b, a): pass", "def f(a, b, d): pass", "def f(a, b, *, c=1): pass", "def f(a, b, *r): pass",
           "def f(a, b, d=1, c=1): pass", "def f(a): pass", "def f(a, b, e=1): pass")
    for source in good:
        _code.check_parameters(_function(source), ("a", "b"), ("c", "d"))
    for source in bad:
        expect_raises(_code.Unknown, lambda: _code.check_parameters(_function(source), ("a", "b"), ("c", "d")))


# -- copies and chains ------------------------------------------------------------------------------------------------


def test_sglang_copy_sees_stand_ins_and_its_module_as_it_is_now() -> None:
    from convoy.sglang import _copies

    assert _copies.works()
    source = ("real = object()\nnumber = 1\ndef g(): return real\n"
              "def f(a, b=2, *, c=3): return [real, (lambda: real)(), [real for _ in 'x'][0], number, len('ab'), b, c, g()]")
    function = _function(source)
    names = function.__globals__
    copy = _copies.copy_of(function, {id(names["real"]): "stand-in"})
    expect_equal(copy(0)[:7], ["stand-in"] * 3 + [1, 2, 2, 3], "the first call")
    assert copy(0)[7] is names["real"], "a function that is called sees its own module"
    names["number"], names["len"] = 5, lambda text: "own"
    expect_equal(copy(0)[3:5], [5, "own"], "after assignments in the module")
    assert function(0)[0] is names["real"], "the function itself is as it was"


def test_sglang_chain_of_others_runs_around_the_replacement() -> None:
    from convoy.sglang import _copies

    kind = _registry_chain()
    seen: List[str] = []

    def inner(x: int) -> int:
        """inner"""
        raise AssertionError("must not run")

    chain = kind("BEFORE", inner, lambda *a: seen.append("before"))
    chain = kind("AROUND", chain, lambda original, x: original(x) + 1)
    chain = kind("AFTER", chain, lambda result, x: seen.append("after %d" % result))
    changed = _copies.rebound(chain, inner, lambda x: 10 * x)
    expect_equal(changed(4), 41, "the result")
    expect_equal(seen, ["before", "after 41"], "hooks of others")
    expect_equal((changed.__doc__, changed.__name__), ("inner", "inner"), "name and text")
    expect_raises(AssertionError, lambda: chain(4))


def test_sglang_chain_that_was_replaced_cannot_be_followed() -> None:
    from convoy.sglang import _copies

    def inner(x: int) -> int:
        return x

    chain = _registry_chain()("REPLACE", inner, lambda x: -x)
    expect_raises(_copies.CannotRebind, lambda: _copies.rebound(chain, inner, lambda x: 0))
    expect_raises(_copies.CannotRebind, lambda: _copies.rebound(lambda x: 0, inner, lambda x: 0))


def _registry_chain() -> Callable[[str, Any, Any], Any]:
    standin.use("today")
    module = importlib.import_module("sglang.srt.plugins.hook_registry")
    makers = dict(module._WRAPPERS)
    makers[module.HookType.REPLACE] = module._with_replace
    return lambda name, below, hook: makers[getattr(module.HookType, name)](below, hook)


if __name__ == "__main__":
    runner.need("torch")
    runner.main(globals())
