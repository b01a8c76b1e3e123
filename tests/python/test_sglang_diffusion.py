#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The hooked host's diffusion flow in real processes: encoder, denoisers and decoder, each as the host's scheduler runs it,
with plain pipes in place of the server's sockets. Every tensor is compared bit by bit where it arrives."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]
os.environ.setdefault("CONVOY_LIBRARY", str(_HERE.parents[1] / "build" / "libconvoy.so.1"))
os.environ.setdefault("CONVOY_SECRET", "of the roles")
os.environ.setdefault("CONVOY_TIMEOUT_MS", "20000")

from lib import runner  # noqa: E402

runner.need("torch")

import torch  # noqa: E402

from lib import diffusion_requests  # noqa: E402
from lib.diffusion_broker import Broker  # noqa: E402
from lib.diffusion_role import MIB, Transport, hook  # noqa: E402
from lib.pair import Child, Pipe  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

SHAPES = ("today", "before")
_OURS, _HOSTS = "ConvoyTransferManager", "DiffusionTransferManager"


def _roles(slots: int, slot_size: int = 2 * MIB) -> Dict[str, Any]:
    receiver = {"pool_size": 32 * MIB, "slots": slots, "slot_size": slot_size}
    return {"encoder": ("encoder", {"pool_size": 32 * MIB}), "denoiser 0": ("denoiser", receiver),
            "denoiser 1": ("denoiser", receiver), "decoder": ("decoder", receiver)}


def _flow(shape: str, numbers: List[int], slots: int, environment: Mapping[str, str] = {}, class_name: str = _OURS) -> Any:
    """Brings the requests through three roles; returns how many went which way."""
    with Broker(shape, _roles(slots), environment) as broker:
        broker.register_all()
        broker.submit(numbers)
        counts = broker.counts
        broker.until(lambda: counts["done"] == len(numbers) or counts["refused"] > 0 or bool(broker.errors), "the end")
        expect_equal((broker.errors, counts["refused"]), ([], 0), "%s: errors, and pushes that failed" % shape)
        for name, left in broker.end().items():
            held = [left[key] for key in ("staged", "pending", "own", "freed", "after", "class_name")]
            freed = 0 if name == "encoder" else slots
            expect_equal(held, [[], [], 0, freed, 0, class_name], "%s: what %s holds" % (shape, name))
        return counts


def test_sglang_diffusion_flow_of_many_requests() -> None:
    for shape, requests in (("today", runner.scaled(100, 2000)), ("before", 40)):
        counts = _flow(shape, list(range(requests)), slots=2)
        assert counts["fast"] > requests // 2 and counts["slow"] > 2, counts
        expect_equal((counts["refused"], counts["fast"] + counts["slow"]), (0, 2 * counts["done"]), "pushes: %s" % counts)


def test_sglang_diffusion_flow_without_preallocated_slots() -> None:
    counts = _flow("today", list(range(24)), slots=0)
    expect_equal((counts["fast"], counts["slow"]), (0, 48), "pushes")


def test_sglang_diffusion_flow_of_the_hosts_own_classes_on_convoys_engine() -> None:
    plain = [5, 11, 17, 23]  # what the host's own can stage and load
    for shape in SHAPES:
        counts = _flow(shape, plain, slots=2, environment={"CONVOY_HOOK_TRANSFER_MANAGER": "0"}, class_name=_HOSTS)
        expect_equal(counts["done"], 4, shape)


def test_sglang_diffusion_comparison_tells_every_difference() -> None:
    def changed(number: int, name: str, value: Any) -> str:
        tensors = dict(diffusion_requests.expected(number))
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
        return diffusion_requests.difference(number, tensors, diffusion_requests.scalars(number))

    whole, scalars = diffusion_requests.expected, diffusion_requests.scalars
    for number in range(12):
        expect_equal(diffusion_requests.difference(number, whole(number), scalars(number)), "", "nothing changed")
    mask, items = whole(5)["mask"], whole(2)["list"]
    for text in (changed(5, "mask", ~mask), changed(5, "mask", mask.reshape(-1)), changed(5, "mask", mask.to(torch.uint8)),
                 changed(5, "mask", [mask]), changed(5, "mask", None), changed(5, "more", mask),
                 changed(2, "list", items[:-1]), changed(2, "list", items + [None]), changed(2, "list", [items[1]] + items[1:]),
                 diffusion_requests.difference(1, whole(1), scalars(2))):
        assert text


# -- peers that fail ---------------------------------------------------------------------------------------------------


def _pusher(pipe: Pipe, shape: str) -> None:
    """An encoder that pushes one staged request again and again, and says after each how it went."""
    transport = Transport(hook(shape), "encoder", 8 * MIB)
    manager = transport.manager
    manager.stage_tensors_async("r", diffusion_requests.fields(5), {})
    while True:
        order = pipe.recv()
        if order is None:
            break
        begun = time.monotonic()
        pushed = manager.push_to_peer("r", *order)
        pipe.send((pushed, time.monotonic() - begun, transport.taken(), sorted(manager._staged), transport.engine.last_error))
    manager.free_staged("r")
    pipe.send((transport.taken(), sorted(manager._staged)))
    manager.cleanup()
    transport.engine.close()


def _sink(pipe: Pipe, shape: str) -> None:
    """A receiver that answers with the bits of what its slot has."""
    transport = Transport(hook(shape), "denoiser", 8 * MIB, slots=1, slot_size=4 * MIB)
    pipe.send((transport.manager.session_id, transport.announced()[0]["addr"], 4 * MIB))
    manifest = pipe.recv()
    if manifest:
        transport.manager.register_prealloc_as_receive("r", transport.slots[0])
        tensors, _ = transport.manager.load_tensors_async("r", manifest, device="cpu")
        pipe.send(diffusion_requests.difference(5, tensors, diffusion_requests.scalars(5)))


_MANIFEST = {"latents": [{"offset": 0, "shape": [diffusion_requests.LARGE], "dtype": "uint8"}],
             "mask": [{"offset": diffusion_requests.LARGE, "shape": [2, 2], "dtype": "bool"}]}


def test_sglang_diffusion_receiver_killed_in_the_middle() -> None:
    for shape in SHAPES:
        with Child(_pusher, shape) as sender, Child(_sink, shape) as dying, Child(_sink, shape) as other:
            target, second = dying.pipe.recv(), other.pipe.recv()
            for _ in range(3):
                sender.pipe.send(target)
                expect_equal(sender.pipe.recv()[0], True, "a push while it lives")
            for _ in range(60):
                sender.pipe.send(target)
            dying.kill()  # somewhere in those
            outcomes = [sender.pipe.recv() for _ in range(60)]
            pushed = [one[0] for one in outcomes]
            assert not pushed[-1] and pushed == sorted(pushed, reverse=True), "pushed until it was dead: %s" % pushed
            for _, seconds, taken, staged, text in outcomes:
                assert seconds < 30, seconds
                expect_equal((taken, staged), (4 * MIB, ["r"]), "what is staged stays")
            assert target[0] in text, text
            sender.pipe.send(second)
            expect_equal(sender.pipe.recv()[0], True, "the other receiver goes on")
            other.pipe.send(_MANIFEST)
            expect_equal(other.pipe.recv(), "", "what the other has")
            sender.pipe.send(None)
            expect_equal(sender.pipe.recv(), (0, []), "freed at last")


def test_sglang_diffusion_flow_goes_on_without_a_denoiser_that_was_killed() -> None:
    with Broker("today", _roles(slots=2)) as broker:
        broker.register_all()
        killed = broker.instances["denoiser 1"]
        broker.submit(list(range(1, 6)))
        broker.until(lambda: broker.counts["done"] == 5, "the first requests")
        killed.child.kill()
        broker.submit([11])
        request = broker._requests["request 11"]
        broker.until(lambda: request.is_done, "a request after its death")
        broker.submit([17])
        request = broker._requests["request 17"]
        place, broker.place = broker.place, lambda request_id, receiver: place(request_id, killed)  # type: ignore[assignment]
        broker.until(lambda: broker.counts["refused"] == 1, "the push to the dead one")
        broker.place = place  # type: ignore[assignment]
        request.slot = None
        broker.place("request 17", broker.instances["denoiser 0"])  # what is staged is pushed to the other
        broker.until(lambda: request.is_done, "the request that was pushed again")
        broker.submit(list(range(18, 24)))
        broker.until(lambda: broker.counts["done"] == 13 or bool(broker.errors), "the last requests")
        expect_equal(broker.errors, [], "errors")
        for name, left in broker.end().items():
            expect_equal((left["staged"], left["pending"], left["own"], left["after"]), ([], [], 0, 0), name)


def test_sglang_diffusion_stale_session_is_refused() -> None:
    with Child(_pusher, "today") as sender, Child(_sink, "today") as receiver:
        session, address, size = receiver.pipe.recv()
        stale = session.split("+")[0] + "+0123456789abcdef"
        sender.pipe.send((stale, address, size))
        pushed, _, taken, staged, text = sender.pipe.recv()
        expect_equal((pushed, taken, staged), (False, 4 * MIB, ["r"]), "the push to a stale session")
        assert stale in text and "incarnation" in text, text
        sender.pipe.send((session, address, size))
        expect_equal(sender.pipe.recv()[0], True, "the push to the one that is there")
        sender.pipe.send(None)
        sender.pipe.recv()
        receiver.pipe.send(_MANIFEST)
        expect_equal(receiver.pipe.recv(), "", "what came")


# -- whose objects the host gets ---------------------------------------------------------------------------------------


def _own_flow(pipe: Pipe, shape: str, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """Two roles of the host's own in one process; its engine in memory reaches no other."""
    modules = hook(shape, environment)
    sender, receiver = (Transport(modules, role, 8 * MIB, **options) for role in ("encoder", "denoiser"))
    staged, _ = sender.manager.stage_tensors_async("r", diffusion_requests.fields(11), diffusion_requests.scalars(11))
    pending = receiver.manager.allocate_receive_slot("r", staged.slot.size)
    address = receiver.manager.pool_data_ptr + pending.slot.offset
    assert sender.manager.push_to_peer("r", receiver.manager.session_id, address, staged.slot.size)
    sender.manager.free_staged("r")
    tensors, _ = receiver.manager.load_tensors_async("r", staged.manifest, device="cpu")
    receiver.manager.free_receive_slot("r")
    names = [type(one).__name__ for one in (sender.engine, sender.buffer, sender.manager)]
    is_hooked = hasattr(modules[0].create_transfer_engine, "__wrapped__")
    pipe.send((names, is_hooked, diffusion_requests.difference(11, tensors, staged.scalar_fields),
               sender.taken(), receiver.taken()))


def test_sglang_diffusion_host_keeps_its_own_where_it_is_asked_to() -> None:
    cases: List[Any] = [
        ("today", {}, {"force_mock": True}, True), ("today", {}, {"backend": "mock"}, True),
        ("today", {"CONVOY_HOOK_TRANSFER": "0"}, {}, False), ("before", {"CONVOY_HOOK_TRANSFER": "0"}, {}, False),
        ("today", {"CONVOY_FALLBACK": "host", "CONVOY_LIBRARY": "/nowhere/libconvoy.so.1"}, {}, True),
        ("before", {"CONVOY_FALLBACK": "host", "CONVOY_LIBRARY": "/nowhere/libconvoy.so.1"}, {}, True),
    ]
    expected = ["MemoryTransferEngine", "TransferTensorBuffer", _HOSTS]
    for shape, environment, options, is_hooked in cases:
        with Child(_own_flow, shape, environment, options) as child:
            expect_equal(child.pipe.recv(), (expected, is_hooked, "", 0, 0), "%s %s %s" % (shape, environment, options))


def _cannot_load(pipe: Pipe) -> None:
    from convoy import errors

    modules = hook("today", {"CONVOY_LIBRARY": "/nowhere/libconvoy.so.1"})
    pipe.send(str(expect_raises(errors.NotFound, lambda: Transport(modules, "encoder", MIB))))


def test_sglang_diffusion_library_that_cannot_be_loaded_is_named() -> None:
    with Child(_cannot_load) as child:
        text = child.pipe.recv()
        assert "/nowhere/libconvoy.so.1" in text, text


if __name__ == "__main__":
    if not os.path.exists(os.environ["CONVOY_LIBRARY"]):
        runner.skip_program("%s has not been built" % os.environ["CONVOY_LIBRARY"])
    runner.main(globals())
