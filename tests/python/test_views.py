#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Views of tensors never show memory that has gone back, whatever ends first: the view, the transfer, the engine, the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1] / "plugin" / "python")]

import convoy  # noqa: E402
from lib import runner  # noqa: E402
from lib.pair import WAIT_S  # noqa: E402
from lib.runner import expect_equal, expect_raises  # noqa: E402

BYTES = 1 << 20
FIRST = b"\x07" * 4


class Two:
    """Two engines, each in a context of its own, and what the first sends to the second."""

    def __init__(self, plugin: convoy.Plugin) -> None:
        self.contexts = [plugin.context(secret=b"views", log=False, settings={"close_timeout_ms": 2000}) for _ in range(2)]
        self.sender, self.receiver = (context.engine(pool_bytes=4 * BYTES) for context in self.contexts)
        self.peer = self.sender.connect(self.receiver.session)

    def move(self, name: str = "r", byte: int = 7, **options: Any) -> convoy.transfer.Loaded:
        """What was received of a megabyte of this byte."""
        sent = self.sender.send_start(self.peer, request=name, tensors={"a": bytes([byte]) * BYTES})
        loaded = self.receiver.accept(name, timeout=WAIT_S, **options)
        sent.wait(WAIT_S).release()
        return loaded


@contextmanager
def two() -> Iterator[Two]:
    with convoy.load() as plugin:
        yield Two(plugin)


def views_of(tensor: Any) -> Dict[str, Callable[[], bytes]]:
    """A view of each kind, as functions that read its first bytes."""
    data = tensor.data
    found: Dict[str, Callable[[], bytes]] = {"memoryview": lambda: bytes(data[:4])}
    try:
        array = tensor.numpy()[1:]
        found["numpy"] = lambda: array[:4].tobytes()
        part = tensor.torch().view(4, -1)[2]
        found["torch"] = lambda: bytes(part[:4].tolist())
    except ImportError:
        pass
    return found


def expect_readable(views: Dict[str, Callable[[], bytes]], what: str) -> None:
    for kind, read in views.items():
        expect_equal(read(), FIRST, "%s, %s" % (kind, what))


def threads() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/task"))


def pool_of(engine: convoy.Engine) -> int:
    gc.collect()
    return engine.figures().taken


def test_a_release_waits_for_the_views() -> None:
    for copy in (False, True):
        with two() as here:
            owner = here.receiver if copy else here.sender
            loaded = here.move(copy=copy)
            views = views_of(loaded["a"])
            loaded.release()
            for number in range(6):
                here.move("other %d" % number, 99, copy=copy).release()
            expect_readable(views, "after its release and six more requests, copy %s" % copy)
            expect_raises(convoy.Closed, lambda: loaded.tensors)
            expect_raises(convoy.Closed, loaded.wait)
            expect_equal(pool_of(owner), BYTES, "bytes that are taken while views are alive")
            views.clear()
            if copy:
                expect_equal(pool_of(owner), 0, "bytes that are taken after the last view")


def test_views_of_what_was_staged() -> None:
    with two() as here:
        staged = here.sender.stage("r", {"a": FIRST * 1024})
        views = views_of(staged["a"])
        failure = expect_raises(convoy.DrainTimeout, lambda: here.sender.close(0.05))
        expect_equal('"r" is not released' in str(failure), True, str(failure))
        expect_readable(views, "after a close that failed")
        staged.release()
        expect_raises(convoy.Closed, lambda: here.sender.send(here.peer, staged))
        here.sender.close()
        expect_readable(views, "after the release and the close")


def test_engine_and_context_are_closed_below_the_views() -> None:
    before = threads()
    ends: List[Callable[[Two], None]] = [
        lambda here: here.receiver.close(), lambda here: here.contexts[1].close(), lambda here: here.peer.disconnect(),
        lambda here: here.sender.close(), lambda here: [context.close() for context in here.contexts] and None]
    for end in ends:
        with two() as here:
            with here.move() as loaded:
                views = views_of(loaded["a"])
            end(here)
            end(here) if end is not ends[2] else None
            expect_readable(views, "after the close")
            here.contexts[1].close()
            expect_equal((here.receiver.closed, here.contexts[1].closed), (True, True), "closed")
            expect_raises(convoy.Closed, here.receiver.info)
            repr(here.receiver), repr(loaded)
            expect_readable(views, "after the context's close")
            views.clear()
        expect_equal(threads(), before, "threads when the last view has gone")


def test_a_destination_is_kept_as_long_as_it_is_shown() -> None:
    with two() as here:
        loaded = here.move(destination=bytearray(BYTES))
        views = views_of(loaded["a"])
        others = [bytearray(b"z" * BYTES) for _ in range(20)]
        expect_readable(views, "in a destination that only the transfer knows")
        loaded.release()
        expect_readable(views, "after the release")
        del others
    with two() as here:
        destination = bytearray(BYTES)
        with here.move(destination=destination) as loaded:
            views = views_of(loaded["a"])
        expect_raises(BufferError, destination.clear)
        views.clear()
        gc.collect()
        destination.clear()


def test_views_end_on_many_threads_and_in_cycles() -> None:
    before = threads()
    with two() as here:
        loaded = here.move()
        views = [loaded["a"].data for _ in range(400)]
        loaded.release()
        here.receiver.close()
        ending = [threading.Thread(target=lambda: [views.pop() for _ in range(50)]) for _ in range(8)]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(WAIT_S)
        expect_equal(len(views), 0, "views that are left")
    expect_equal(threads(), before, "threads after the last view")
    with two() as here:
        cycle: Dict[str, Any] = {"loaded": here.move()}
        cycle["self"], cycle["view"] = cycle, cycle["loaded"]["a"].data
        del cycle
        gc.collect()
    expect_equal(threads(), before, "threads after a cycle")


AT_EXIT = """
import builtins, sys
import convoy
plugin = convoy.load()
engines = [plugin.context(secret=b"x", log=False).engine(pool_bytes=4 << 20) for _ in range(2)]
sent = engines[0].send_start(engines[0].connect(engines[1].session), request="r", tensors={"a": b"\\x07" * 4096})
with engines[1].accept(timeout=20) as loaded:
    view = loaded["a"].data

class Last:
    def __init__(self, view): self.view, self.write = view, sys.stdout.write
    def __del__(self): self.write("%s\\n" % (bytes(self.view[:4]) == b"\\x07" * 4)); sys.__stdout__ and sys.__stdout__.flush()

builtins.last = Last(view)
"""


def test_views_at_the_end_of_the_interpreter() -> None:
    environment = dict(os.environ, PYTHONPATH=str(_HERE.parents[1] / "plugin" / "python"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, "-c", AT_EXIT], env=environment, capture_output=True, timeout=WAIT_S)
    expect_equal((done.returncode, done.stdout, done.stderr), (0, b"True\n", b""), "a view that is read last of all")


if __name__ == "__main__":
    runner.main(globals())
