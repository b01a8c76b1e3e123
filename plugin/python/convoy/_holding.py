# SPDX-License-Identifier: Apache-2.0
"""Transfers with a payload to look into: what was staged here, and what was loaded."""

from __future__ import annotations

import json
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from convoy import _abi, _views, errors
from convoy._describe import read_bytes
from convoy._transfers import Transfer

if TYPE_CHECKING:
    from convoy.transfer import Engine


class Holding(Transfer):
    """A transfer with a payload to look into.

    After its release nothing new can be seen of it. What was seen before (memoryviews, arrays, tensors) keeps its memory: it
    goes back with the last of them.
    """

    _payload: Optional[_views.Payload] = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._spans: "Dict[int, weakref.ref[Any]]" = {}  # what was given out and is alive
        self._memory = [True]  # whoever takes this out lets it go
        self._destination: Any = None  # of the caller's, where the tensors lie
        super().__init__(*arguments, **keywords)

    def _check_held(self) -> None:
        if self._released or self._engine.closed:
            raise errors.Closed("request \"%s\" was released here" % self._request)

    def _lend(self, span: Any) -> None:
        """Memory that lies here is given out. Raises Closed: it was released meanwhile."""
        self._spans[id(span)] = weakref.ref(span, _returner(weakref.ref(self), id(span)))
        self._check_held()
        if self._engine._is_closing:
            raise errors.Closed("the engine of request \"%s\" is being closed" % self._request)

    def _returned(self, key: int) -> None:
        self._spans.pop(key, None)
        if self._released:
            try:
                self._let_go()
            except errors.ConvoyError:  # nobody waits for it
                pass

    def _let_go(self) -> None:
        if self._is_idle() and self._take_memory():
            super()._let_go()
            self._destination = None
            self._engine._view_gone()

    def _take_memory(self) -> bool:
        """True once: threads may end the last two views at one time."""
        try:
            return self._memory.pop()
        except IndexError:
            return False

    def _is_idle(self) -> bool:
        return not self._spans

    def __del__(self) -> None:
        if hasattr(self, "_memory"):
            self._spans = {}  # they would keep this alive, so they go as well
            if self._released:
                self._returned(0)
            super().__del__()

    @property
    def request(self) -> str:
        """The request's name; of an accept of any, empty until it is loaded."""
        if not self._request and not self._released:
            try:
                self.payload()
            except errors.BadState:
                pass
        return self._request

    def payload(self) -> _views.Payload:
        """All that is known of it, tensors by address. Raises BadState: it is not there yet."""
        self._check_held()
        if self._payload is None:
            self._payload = _views.read(partial(self._engine._use, "payload"), self.handle())
            self._request = self._payload.request
        return self._payload

    @property
    def tensors(self) -> Dict[str, _views.Field]:
        """Tensors by name, read-only where they lie; a list has None for each hole."""
        return _views.fields(self, self.payload())

    def __getitem__(self, name: str) -> _views.Field:
        return self.tensors[name]

    @property
    def scalars_text(self) -> Optional[str]:
        """The sender's own text; None: it sent none."""
        return self.payload().scalars

    def scalars(self) -> Dict[str, Any]:
        """The scalars, parsed; none at all is an empty dictionary."""
        text = self.payload().scalars
        parsed: Dict[str, Any] = {} if text is None else json.loads(text)
        return parsed

    @property
    def attempt(self) -> int:
        """Of the request, from 1."""
        return self.payload().attempt

    @property
    def priority(self) -> int:
        """Of the request, as its sender staged it; 0 = usual, or a sender before transfer 1.1."""
        return self.payload().priority

    @property
    def session(self) -> str:
        """Session id of the engine that staged it."""
        return self.payload().session


class Staged(Holding):
    """What lies in the own pool for peers to read. Their views stay valid after its release."""

    def descriptor(self, form: str = "binary") -> Union[bytes, str]:
        """What another engine needs to load it, for the host's own broker: bytes, or with form "json" the text of the
        hosts' transfer_staged message. Raises BadState: it is not STAGED."""
        forms = {"binary": _abi.DESCRIPTOR_BINARY, "json": _abi.DESCRIPTOR_JSON}
        if form not in forms:
            raise errors.InvalidArgument("form is %r; allowed: binary, json" % (form,))
        use, value = self._engine._use, self.handle()
        text = read_bytes(lambda buffer, error: use("descriptor", value, forms[form], buffer, error))
        return text.decode("utf-8") if form == "json" else text


class Loaded(Holding):
    """What was received: in place in the sender's pool, in the own pool, or in a destination of the caller's, which is kept
    until the release."""

    def __init__(self, engine: "Engine", value: int, request: str, destination: Any) -> None:
        super().__init__(engine, value, request, destination)
        self._destination = destination


def _returner(holder: "weakref.ref[Holding]", key: int) -> "Callable[[Any], None]":
    def returned(ref: Any) -> None:
        alive = holder()
        if alive is not None:
            alive._returned(key)

    return returned
