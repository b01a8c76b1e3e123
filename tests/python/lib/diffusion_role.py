# SPDX-License-Identifier: Apache-2.0
"""A diffusion role as the host's scheduler runs it, in a process of its own, with the host hooked.

The main thread takes the broker's messages and what is loaded, one thread pushes, one thread loads; what they share is
two queues. The objects are made, called and freed in the order that the host does it in.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import queue
import threading
from multiprocessing import connection
from typing import Any, Dict, List, Mapping, Tuple

import standin
from lib import diffusion_requests
from lib.pair import WAIT_S, Pipe

TRANSPORT = "sglang.multimodal_gen.runtime.disaggregation.transport"
MIB = 1 << 20
_DEPTH = 4  # of a queue between threads
NEXT_HOP = 1080  # what a denoiser makes of request n is request n + 1080, which is of the same kind
_LIMIT_S = 120.0
_END: Any = None


def hook(shape: str, environment: Mapping[str, str] = {}) -> Tuple[Any, Any, Any]:
    """(engine, buffer, manager) modules of a freshly hooked host. environment: set in this process before that."""
    os.environ.update(environment)
    standin.use(shape)
    sglang = importlib.import_module("convoy.sglang")
    own = shape == "today"  # the release before has one registry for both servers
    (sglang.register_diffusion if own else sglang.register)()
    registry = "sglang.multimodal_gen.plugins" if own else "sglang.srt.plugins.hook_registry"
    importlib.import_module(registry).HookRegistry.apply_hooks()
    engine, buffer, manager = (importlib.import_module("%s.%s" % (TRANSPORT, n)) for n in ("engine", "buffer", "manager"))
    return engine, buffer, manager


def _class_name(manager: Any) -> str:
    """Whose class it is made of: convoy's has another name than the host's, and one that a hook made of it has that above."""
    names = [kind.__name__ for kind in type(manager).__mro__]
    return "ConvoyTransferManager" if "ConvoyTransferManager" in names else names[0]


class Transport:
    """Engine, buffer, manager and preallocated slots, made in the host's order."""

    def __init__(self, modules: Tuple[Any, Any, Any], role: str, pool_size: int, slots: int = 0, slot_size: int = MIB,
                 **options: Any) -> None:
        engines, buffers, managers = modules
        self.engine = engines.create_transfer_engine(hostname="127.0.0.1", gpu_id=0, ib_device=None, **options)
        device = "cuda:0" if self.engine.supports_gpu_direct else "cpu"
        self.buffer = buffers.TransferTensorBuffer(pool_size=pool_size, device=device, role_name=role)
        self.manager = managers.DiffusionTransferManager(engine=self.engine, buffer=self.buffer)
        self.slots: Dict[int, Any] = {}
        for number in range(slots):
            slot = self.buffer.allocate(slot_size, "prealloc_%d" % number)
            assert slot is not None, "no room for a preallocated slot"
            self.slots[number] = slot

    def announced(self) -> List[Dict[str, int]]:
        base = self.manager.pool_data_ptr
        return [{"offset": slot.offset, "size": slot.size, "slot_id": number, "addr": base + slot.offset}
                for number, slot in self.slots.items()]

    def taken(self) -> int:
        """Bytes of the pool that somebody has."""
        stats = self.buffer.get_stats()
        return int(stats["allocated_bytes"] if "allocated_bytes" in stats else stats["used_bytes"])

    def left(self) -> Dict[str, Any]:
        """What is still held, then what is left when the preallocated slots are freed as well."""
        held = {"staged": sorted(self.manager._staged), "pending": sorted(self.manager._pending_receives),
                "own": self.taken() - sum(slot.size for slot in self.slots.values())}
        held["freed"] = [self.buffer.free(slot) for slot in self.slots.values()].count(True)
        return dict(held, after=self.taken(), class_name=_class_name(self.manager))


class Role:
    """The scheduler of one role."""

    def __init__(self, pipe: Pipe, name: str, role: str, transport: Transport) -> None:
        self._pipe, self._name, self._role, self._transport = pipe, name, role, transport
        self._manager = transport.manager
        self._sending = threading.Lock()
        self._pushes: "queue.Queue[Any]" = queue.Queue(_DEPTH)
        self._loads: "queue.Queue[Any]" = queue.Queue(_DEPTH)
        self._loaded, self._load_done = connection.Pipe(duplex=False)
        self._results: "queue.Queue[Any]" = queue.Queue()  # beside the bell, which wakes the main thread
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._push_all, self._load_all)]

    def _send(self, kind: str, request_id: str, **more: Any) -> None:
        with self._sending:
            self._pipe.send(dict(more, msg_type="transfer_" + kind, request_id=request_id, role=self._role, name=self._name))

    def run(self) -> None:
        """Until the broker says that it is over."""
        for thread in self._threads:
            thread.start()
        manager = self._manager
        self._send("register", "", session_id=manager.session_id, pool_ptr=manager.pool_data_ptr,
                   pool_size=manager.pool_size, preallocated_slots=self._transport.announced())
        source: Any = self._pipe._connection
        while True:
            ready = connection.wait([source, self._loaded], WAIT_S)
            if not ready:
                raise TimeoutError("%s: nobody has said anything for %g s" % (self._name, WAIT_S))
            if self._loaded in ready:
                self._loaded.recv_bytes()
                self._compute(*self._results.get())
            elif not self._handle(self._pipe.recv()):
                break
        for work in (self._pushes, self._loads):
            work.put(_END)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a thread of the role hangs"
        self._send("left", "", **self._transport.left())
        manager.cleanup()

    def _handle(self, message: Dict[str, Any]) -> bool:
        kind, request_id = message["msg_type"], message["request_id"]
        if kind == "end":
            return False
        if kind == "submit":
            self._stage("staged", request_id, message["number"])
        elif kind == "transfer_push":
            self._pushes.put(message)
        elif kind == "transfer_alloc":
            self._allocate(request_id, message["data_size"])
        elif kind == "transfer_ready":
            self._loads.put(message)
        return True

    def _stage(self, kind: str, request_id: str, number: int, **more: Any) -> None:
        manager = self._manager
        staged, event = manager.stage_tensors_async(request_id, diffusion_requests.fields(number),
                                                    diffusion_requests.scalars(number))
        if staged is None:
            return self._send("done", request_id, error="no room for request %d" % number)
        if event is not None:
            event.synchronize()
        slot = staged.slot
        self._send(kind, request_id, data_size=slot.size if slot else 0, manifest=staged.manifest,
                   session_id=manager.session_id, pool_ptr=manager.pool_data_ptr, slot_offset=slot.offset if slot else 0,
                   scalar_fields=staged.scalar_fields, number=number, **more)

    def _allocate(self, request_id: str, size: int) -> None:
        pending = self._manager.allocate_receive_slot(request_id, size)
        if pending is None:
            return self._send("done", request_id, error="no receive slot of %d bytes" % size)
        self._send("allocated", request_id, session_id=self._manager.session_id, pool_ptr=self._manager.pool_data_ptr,
                   slot_offset=pending.slot.offset, slot_size=pending.slot.size)

    def _push_all(self) -> None:
        """The push thread: what is staged is freed once it is pushed, and kept when it is not."""
        for message in iter(self._pushes.get, _END):
            request_id = message["request_id"]
            success = self._manager.push_to_peer(request_id, message["dest_session_id"], message["dest_addr"],
                                                 message["transfer_size"])
            if success:
                self._manager.free_staged(request_id)
            self._send("pushed", request_id, success=success)

    def _load_all(self) -> None:
        """The prefetch thread; it frees nothing."""
        for message in iter(self._loads.get, _END):
            request_id, slot_id = message["request_id"], message["scalar_fields"].pop("_prealloc_slot_id", None)
            if slot_id is not None:
                self._manager.register_prealloc_as_receive(request_id, self._transport.slots[slot_id])
            try:
                tensors, event = self._manager.load_tensors_async(request_id, message["manifest"], device="cpu")
                self._results.put((message, slot_id, tensors, event, ""))
            except Exception as failure:
                self._results.put((message, slot_id, {}, None, "%s: %s" % (type(failure).__name__, failure)))
            self._load_done.send_bytes(b"1")

    def _compute(self, message: Dict[str, Any], slot_id: Any, tensors: Any, event: Any, error: str) -> None:
        manager, request_id, number = self._manager, message["request_id"], message["number"]
        if event is not None:
            event.synchronize()
        if slot_id is None:
            manager.free_receive_slot(request_id)
        else:
            with manager._lock:
                manager._pending_receives.pop(request_id, None)
        error = error or diffusion_requests.difference(number, tensors, message["scalar_fields"])
        if error or self._role == "decoder":
            return self._send("done", request_id, error=error or None, number=number)
        self._stage("done", request_id, number + NEXT_HOP, error=None, staged_for_decoder=True)


def run(pipe: Pipe, name: str, role: str, shape: str, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
    """The whole process of a role. options: of its Transport."""
    faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
    transport = Transport(hook(shape, environment), role, **options)
    Role(pipe, name, role, transport).run()
    if hasattr(transport.engine, "close"):
        transport.engine.close()
