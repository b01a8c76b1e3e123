# SPDX-License-Identifier: Apache-2.0
"""Opening groups from process groups, and a cache of them."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

from convoy.context import Context
from convoy.torch._ranks import ranks_text, resolve
from convoy.torch.exchange import Exchange
from convoy.torch.group import TorchGroup


_naming = threading.Lock()
_names: "weakref.WeakKeyDictionary[Context, Set[str]]" = weakref.WeakKeyDictionary()  # that each context has had


def _own_name(context: Context, ranks: List[int]) -> str:
    """A name that no group of torch's in the context has had, so that figures of two groups of the same ranks stay apart.
    It is taken from now on: another thread may be opening a group of the same ranks."""
    base = name = "torch:" + ranks_text(ranks)
    number = 1
    with _naming:
        taken = _names.setdefault(context, set())
        while name in taken:
            number += 1
            name = "%s#%d" % (base, number)
        taken.add(name)
    return name


def _open(context: Context, exchange: Exchange, name: Optional[str], options: Dict[str, Any]) -> TorchGroup:
    ranks = exchange.ranks
    agreed = name
    if agreed is None:  # the first rank names it
        own = _own_name(context, ranks) if exchange.index == 0 else ""
        agreed = exchange.gather(own.encode().ljust(127, b"\0"))[0].rstrip(b"\0").decode()
    with _naming:
        _names.setdefault(context, set()).add(agreed)
    return context._make_group(TorchGroup, agreed, ranks, ranks[exchange.index], None, exchange.gather, options)


def open_group(context: Context, process_group: Any = None, name: Optional[str] = None, **options: Any) -> TorchGroup:
    """Opens a group of the ranks of a process group (None = the world). Collective.

    Members are the global ranks in the order of the process group. They meet through its all-gather, on CPU tensors or,
    where NCCL is its only backend, on the current CUDA device. name: None = "torch:" and the ranks, as "torch:0-3", with
    a number where the first rank has such a group already. options: as in ``Context.group``.
    Raises on all ranks or on none, as ``agree`` does; what was opened is closed before that. Unreachable: the all-gather
    of torch failed, which the others cannot be told. The process group may be destroyed afterwards.
    """
    exchange = Exchange(resolve(process_group))
    group: Optional[TorchGroup] = None
    failure: Optional[BaseException] = None
    try:
        group = _open(context, exchange, name, options)
    except BaseException as reason:
        failure = reason
    try:
        exchange.finish(failure)
    except BaseException:
        if group is not None:
            group.close()
        raise
    assert group is not None
    return group


class Groups:
    """A group for each process group, opened when it is first asked for. A context manager.

    Process groups are held weakly. One that was destroyed and made again is a new one and gets a group of its own; the
    group of one that has gone is closed when the next group is opened, or by close(). Any thread may ask.
    """

    def __init__(self, context: Context, **options: Any) -> None:
        """options: for every group, as in ``Context.group``."""
        self._context = context
        self._options = options
        self._lock = threading.Lock()
        self._by_process_group: "weakref.WeakKeyDictionary[Any, TorchGroup]" = weakref.WeakKeyDictionary()
        self._opened: List[Tuple[Any, TorchGroup]] = []  # (weak reference of the process group, its group)

    def get(self, process_group: Any = None) -> TorchGroup:
        """The group of this process group (None = the world). The first time it is collective: see ``open_group``."""
        if process_group is None:
            process_group = resolve(None)
        group = self._by_process_group.get(process_group)
        return group if group is not None else self._open(process_group)

    def _open(self, process_group: Any) -> TorchGroup:
        process_group = resolve(process_group)
        with self._lock:
            group = self._by_process_group.get(process_group)
            if group is None:
                self._sweep()
                group = open_group(self._context, process_group, **self._options)
                self._by_process_group[process_group] = group
                self._opened.append((weakref.ref(process_group), group))
            return group

    def _sweep(self) -> None:
        """Closes the groups of process groups that have gone."""
        for reference, group in self._opened:
            if reference() is None:
                group.close()
        self._opened = [(reference, group) for reference, group in self._opened if reference() is not None]

    def close(self) -> None:
        """Closes all groups. Local; the next ``get`` opens anew."""
        with self._lock:
            self._by_process_group.clear()
            while self._opened:
                self._opened[-1][1].close()
                self._opened.pop()

    def __enter__(self) -> "Groups":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
