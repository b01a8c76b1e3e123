# SPDX-License-Identifier: Apache-2.0
"""The server between diffusion roles: who is registered, which slots are free, and who pushes what to whom. Its sockets
are plain pipes, all else is as the host's server does it."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from multiprocessing.connection import wait
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from lib import diffusion_role
from lib.pair import Child

_CAPACITY = {"encoder": 4, "denoiser": 2, "decoder": 4}
_LIMIT_S = 100.0


class Instance:
    """One process of a role, as the server knows it."""

    def __init__(self, name: str, role: str, child: Child) -> None:
        self.name, self.role, self.child = name, role, child
        self.record: Dict[str, Any] = {}
        self.free_slots: Deque[Dict[str, int]] = deque()
        self.left: Optional[Dict[str, Any]] = None
        self.busy = 0
        self.is_alive = True

    def send(self, kind: str, request_id: str, **more: Any) -> None:
        self.child.pipe.send(dict(more, msg_type=kind, request_id=request_id))


class Request:
    """Where one request stands."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sender: Any = None
        self.receiver: Any = None
        self.staged: Dict[str, Any] = {}
        self.slot: Optional[Dict[str, int]] = None
        self.offset = 0
        self.is_done = False


class Broker:
    """Starts the roles, brings requests through them, and counts. A context manager: all have ended on leaving."""

    def __init__(self, shape: str, roles: Mapping[str, Tuple[str, Mapping[str, Any]]],
                 environment: Mapping[str, str] = {}) -> None:
        """roles: name -> (role, options of its Transport)."""
        self._stack = ExitStack()
        self.instances: Dict[str, Instance] = {}
        self._requests: Dict[str, Request] = {}
        self._waiting: Dict[str, Deque[str]] = {role: deque() for role in _CAPACITY}
        self.counts = {"fast": 0, "slow": 0, "refused": 0, "done": 0}
        self.errors: List[str] = []
        for name, (role, options) in roles.items():
            child = Child(diffusion_role.run, name, role, shape, dict(environment), dict(options))
            self._stack.enter_context(child)
            self.instances[name] = Instance(name, role, child)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Handles messages until the condition holds."""
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, "%s has not come; %s; errors: %s" % (what, self.counts, self.errors)
            sources: Dict[Any, Instance] = {
                one.child.pipe._connection: one for one in self.instances.values() if one.is_alive and one.left is None}
            for source in wait(list(sources), 1.0):
                self._receive(sources[source])

    def _receive(self, instance: Instance) -> None:
        try:
            message = instance.child.pipe.recv()
        except (EOFError, OSError):
            instance.is_alive = False
            if not instance.child._is_killed:
                self.errors.append("%s has ended" % instance.name)
                raise AssertionError("%s has ended" % instance.name) from None
            return
        handler = getattr(self, "_on_" + message["msg_type"][len("transfer_"):])
        handler(instance, message, self._requests.get(message["request_id"]))

    def register_all(self) -> None:
        self.until(lambda: all(one.record for one in self.instances.values()), "a registration")

    def submit(self, numbers: List[int]) -> None:
        """Queues requests for the encoder."""
        for number in numbers:
            request_id = "request %d" % number
            self._requests[request_id] = Request(number)
            self._waiting["encoder"].append(request_id)
        self._dispatch("encoder")

    def end(self) -> Dict[str, Dict[str, Any]]:
        """Ends the roles; what each still held by then."""
        alive = [one for one in self.instances.values() if one.is_alive]
        for one in alive:
            one.send("end", "")
        self.until(lambda: all(one.left is not None for one in alive), "the end of the roles")
        return {one.name: one.left or {} for one in alive}

    # -- messages -----------------------------------------------------------------------------------------------------

    def _on_register(self, instance: Instance, message: Dict[str, Any], _: Any) -> None:
        instance.record = message
        instance.free_slots = deque(message["preallocated_slots"])

    def _on_staged(self, instance: Instance, message: Dict[str, Any], request: Request) -> None:
        request.sender, request.staged = instance, message
        role = "decoder" if instance.role == "denoiser" else "denoiser"
        self._waiting[role].append(message["request_id"])
        self._dispatch(role)

    def _on_allocated(self, instance: Instance, message: Dict[str, Any], request: Request) -> None:
        request.offset = message["slot_offset"]
        self._push(message["request_id"], request, message["pool_ptr"] + message["slot_offset"])

    def _on_pushed(self, instance: Instance, message: Dict[str, Any], request: Request) -> None:
        if not message["success"]:
            self.counts["refused"] += 1
            return
        instance.busy -= 1
        scalars = dict(request.staged["scalar_fields"])
        if request.slot is not None:
            scalars["_prealloc_slot_id"] = request.slot["slot_id"]
        request.receiver.send("transfer_ready", message["request_id"], manifest=request.staged["manifest"],
                              slot_offset=request.offset, scalar_fields=scalars, number=request.staged["number"])
        self._dispatch(instance.role)

    def _on_done(self, instance: Instance, message: Dict[str, Any], request: Request) -> None:
        if message["error"]:
            self.errors.append(message["error"])
        if request.slot is not None:  # the denoiser's comes back as large as the payload was, as at the host
            size = request.staged["data_size"] if instance.role == "denoiser" else request.slot["size"]
            instance.free_slots.append(dict(request.slot, size=size or request.slot["size"]))
            request.slot = None
        if message.get("staged_for_decoder"):
            return self._on_staged(instance, message, request)
        instance.busy -= 1
        request.is_done = True
        self.counts["done"] += 1
        self._dispatch(instance.role)

    def _on_left(self, instance: Instance, message: Dict[str, Any], _: Any) -> None:
        instance.left = message

    # -- whom to -------------------------------------------------------------------------------------------------------

    def _dispatch(self, role: str) -> None:
        waiting = self._waiting[role]
        while waiting:
            able = [one for one in self.instances.values()
                    if one.role == role and one.is_alive and not one.child._is_killed and one.busy < _CAPACITY[role]]
            if not able:
                return
            chosen = min(able, key=lambda one: one.busy)
            chosen.busy += 1
            request_id = waiting.popleft()
            request = self._requests[request_id]
            if role == "encoder":
                chosen.send("submit", request_id, number=request.number)
            else:
                self.place(request_id, chosen)

    def place(self, request_id: str, receiver: Instance) -> None:
        """Fast path: into a preallocated slot, if the first free one is large enough. Else a slot is asked for."""
        request = self._requests[request_id]
        request.receiver, size = receiver, request.staged["data_size"]
        if receiver.free_slots and receiver.free_slots[0]["size"] >= size:
            request.slot = slot = receiver.free_slots.popleft()
            request.offset = slot["offset"]
            self.counts["fast"] += 1
            self._push(request_id, request, slot["addr"])
        else:
            self.counts["slow"] += 1
            receiver.send("transfer_alloc", request_id, data_size=size, source_role=request.sender.role)

    def _push(self, request_id: str, request: Request, address: int) -> None:
        request.sender.send("transfer_push", request_id, dest_session_id=request.receiver.record["session_id"],
                            dest_addr=address, transfer_size=request.staged["data_size"])
