#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What hosts do today without RDMA: pyzmq multipart, a JSON descriptor and the payload, from process to process.

Usage: zmq_peer.py [--quick] TRANSPORT:WAY:BYTES ..., TRANSPORT tcp (loopback) or ipc, WAY one of
  plain      both sides use pyzmq's copying calls; the receiver then copies the bytes into a tensor of its own, the same
             one every time: fresh pages cost more than the copy, and a careful host saves them
  zero-copy  frames without copies (copy=False) on both sides; the receiver's tensor is a view of the frame

A sample is the time from before the descriptor is written until the receiver says that its tensor is there. First and last
word of the payload hold the number of the round and are looked at outside of it.
"""
import json
import multiprocessing
import statistics
import sys
import tempfile
import time

import numpy
import zmq

LIMIT_MS = 30000
BUDGET_S = 2.0
ROUNDS = (10, 1000)


def open_socket(context, kind):
    socket = context.socket(kind)
    socket.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
    socket.setsockopt(zmq.SNDTIMEO, LIMIT_MS)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def bind(socket, transport, folder, name):
    socket.bind("tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{folder}/{name}")
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def load(frames, own):
    """The tensor that a hand-over ends in: own, or a view of the frame where there is none."""
    head, body = frames if own is not None else (frames[0].buffer.tobytes(), frames[1].buffer)
    descriptor = json.loads(head)
    tensor = numpy.frombuffer(body, descriptor["dtype"]).reshape(descriptor["shape"])
    if own is None:
        return tensor
    numpy.copyto(own, tensor)
    return own


def receive(transport, is_plain, size, folder, pipe):
    """The receiver's process, until an empty message comes; ends by itself when nothing comes."""
    with zmq.Context() as context:
        incoming, outgoing = open_socket(context, zmq.PULL), open_socket(context, zmq.PUSH)
        pipe.send(bind(incoming, transport, folder, "there"))
        outgoing.connect(pipe.recv())
        own = numpy.ones(size, numpy.uint8) if is_plain else None
        index = 0
        while len(frames := incoming.recv_multipart(copy=is_plain)) == 2:
            tensor = load(frames, own)
            outgoing.send(b"taken")
            words = tensor.view(numpy.uint64)
            if words[0] != index or words[-1] != index:
                sys.exit(f"round {index} brought what belongs to {words[0]} and {words[-1]}")
            outgoing.send(b"checked")
            index += 1
        incoming.close()
        outgoing.close()


def send_round(sockets, tensor, index, is_plain):
    outgoing, incoming = sockets
    words = tensor.view(numpy.uint64)
    words[0] = words[-1] = index
    start = time.monotonic_ns()
    descriptor = {"request_id": f"bench-{index}", "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    outgoing.send_multipart([json.dumps(descriptor).encode(), tensor], copy=is_plain)
    incoming.recv()
    took = time.monotonic_ns() - start
    incoming.recv()
    return took


def send_rounds(sockets, tensor, is_plain, budget_s):
    """As many as there is time for."""
    samples = []
    end = time.monotonic() + budget_s
    while len(samples) < ROUNDS[0] or (len(samples) < ROUNDS[1] and time.monotonic() < end):
        samples.append(send_round(sockets, tensor, len(samples), is_plain))
    sockets[0].send(b"")
    return samples


def samples_of(transport, is_plain, size, budget_s):
    tensor = numpy.random.default_rng(7).integers(1, 256, size, numpy.uint8)  # zeros may be copied faster
    pipe, other = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        receiver = multiprocessing.Process(target=receive, args=(transport, is_plain, size, folder, other),
                                           daemon=True)
        receiver.start()
        outgoing, incoming = open_socket(context, zmq.PUSH), open_socket(context, zmq.PULL)
        outgoing.connect(pipe.recv())
        pipe.send(bind(incoming, transport, folder, "here"))
        samples = send_rounds((outgoing, incoming), tensor, is_plain, budget_s)
        receiver.join(LIMIT_MS / 1000)
        outgoing.close()
        incoming.close()
        if receiver.exitcode != 0:
            sys.exit("the receiver failed")
    return samples


def measure(case, is_quick):
    transport, way, size = case.split(":")
    size = int(size)
    if transport not in ("tcp", "ipc") or way not in ("plain", "zero-copy") or size % 8 != 0:
        sys.exit(f"\"{case}\" is not tcp or ipc : plain or zero-copy : BYTES, a multiple of 8")
    samples = samples_of(transport, way == "plain", size, BUDGET_S / 8 if is_quick else BUDGET_S)
    samples = sorted(samples[len(samples) // 10:])
    print(json.dumps({"peer": f"zmq-{transport}-{way}", "case": f"hand:{size}",
                      "median_us": round(statistics.median(samples) / 1e3, 3),
                      "p99_us": round(samples[len(samples) * 99 // 100] / 1e3, 3), "rounds": len(samples)}), flush=True)


def main():
    arguments = sys.argv[1:]
    is_quick = "--quick" in arguments
    for case in arguments:
        if case != "--quick":
            measure(case, is_quick)


if __name__ == "__main__":
    main()
