# SPDX-License-Identifier: Apache-2.0
"""Transfers with a payload to look into: what was staged here, and what was loaded."""

from __future__ import annotations

import json
import weakref
from functools import partial
from typing import Any, Dict, List, Optional, Union

from convoy import _abi, _views, errors
from convoy._describe import read_bytes
from convoy._transfers import Transfer


class Holding(Transfer):
    """A transfer with a payload to look into."""

    _payload: Optional[_views.Payload] = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._spans: "List[weakref.ref[Any]]" = []
        super().__init__(*arguments, **keywords)

    def _check_held(self) -> None:
        if self._released or self._engine.closed:
            raise errors.Closed("request \"%s\" was released; its views are void" % self.request)

    def _lent(self, span: Any) -> None:
        self._spans = [ref for ref in self._spans if ref() is not None] + [weakref.ref(span)]

    def _is_idle(self) -> bool:
        return all(ref() is None for ref in self._spans)

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
            self._payload = _views.read(partial(self._engine._use, "payload"), self.value)
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
        use = self._engine._use
        text = read_bytes(lambda buffer, error: use("descriptor", self.value, forms[form], buffer, error))
        return text.decode("utf-8") if form == "json" else text


class Loaded(Holding):
    """What was received: in place in the sender's pool, in the own pool, or in a destination of the caller's."""
