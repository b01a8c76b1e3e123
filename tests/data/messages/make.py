#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the messages beside this file as a host's Python writes them: json.dumps with separators "," and ":".

Usage: tests/data/messages/make.py (needs nothing but the standard library). One file per message, TYPE.CASE.json.
"""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
STRANGE = 'r-\u00e9\u4e2d\U0001f680 "q" \\ / \b\f\n\r\t \x00\x1f\x7f \u2028'
MANIFEST = {
    "latents": [{"offset": 0, "shape": [1, 16, 128, 128], "dtype": "bfloat16"}],
    "prompt_embeds": [
        {"offset": 524288, "shape": [1, 512, 4096], "dtype": "float16", "list_index": 0},
        {"offset": 4718592, "shape": [], "dtype": "int64", "list_index": 2},
    ],
}
SCALARS = {"seed": 18446744073709551615, "guidance_scale": 7.5, "prompt": "caf\u00e9 \U0001f600", "_extra_n": None,
           "flags": [True, False, []], "_trace_state": {"a": {"b": {}}}}
SLOTS = [{"offset": 0, "size": 67108864, "slot_id": 0, "addr": 140000000000000},
         {"offset": 67108864, "size": 67108864, "slot_id": 1, "addr": 140000067108864}]
# Texts of values that Python would read and write differently: they must not change on their way.
RAW = '{"big":1e400,"u64":18446744073709551615,"tiny":-0.0,"e":1E+2,"dup":1,"dup":2,"s":"\\u00E9\\/\\ud800","x":{ "y" : [ ] }}'

PLACE = {"session_id": "host-a:17000", "pool_ptr": 139637976727552, "slot_offset": 4194304}
# type: its fields in order, as defaults; typical values.
MESSAGES = {
    "register": (
        {"role": "", "session_id": "", "pool_ptr": 0, "pool_size": 0, "work_endpoint": "", "preallocated_slots": []},
        {"role": "denoiser", "session_id": "host-a:17000", "pool_ptr": 139637976727552, "pool_size": 268435456,
         "work_endpoint": "tcp://10.0.0.1:5555", "preallocated_slots": SLOTS}),
    "register_ack": ({}, {}),
    "staged": (
        {"request_id": "r", "data_size": 0, "manifest": {}, "session_id": "", "pool_ptr": 0, "slot_offset": 0,
         "scalar_fields": {}},
        {"data_size": 8388608, "manifest": MANIFEST, **PLACE, "scalar_fields": SCALARS}),
    "alloc": ({"request_id": "r", "data_size": 0, "source_role": ""}, {"data_size": 8388608, "source_role": "encoder"}),
    "allocated": (
        {"request_id": "r", "session_id": "", "pool_ptr": 0, "slot_offset": 0, "slot_size": 0},
        {**PLACE, "slot_size": 8388608}),
    "push": (
        {"request_id": "r", "dest_session_id": "", "dest_addr": 0, "transfer_size": 0},
        {"dest_session_id": "host-b:17000", "dest_addr": 9007199254740992, "transfer_size": 8388608}),
    "pushed": ({"request_id": "r"}, {}),
    "ready": (
        {"request_id": "r", "manifest": {}, "slot_offset": 0, "scalar_fields": {}},
        {"manifest": MANIFEST, "slot_offset": 4194304, "scalar_fields": {**SCALARS, "_prealloc_slot_id": 1}}),
    "done": ({"request_id": "r", "error": None}, {"error": "Failed to stage \u2026 output"}),
    "alloc_reject": (
        {"request_id": "r", "retryable": False, "reason": "", "retry_after_ms": 0},
        {"retryable": True, "reason": "pool of 268435456 bytes is full", "retry_after_ms": 50}),
    "failed": ({"request_id": "r", "status": 0, "reason": ""}, {"status": -303, "reason": "the peer is gone"}),
    "abort": ({"request_id": "r", "reason": ""}, {"reason": "the client went away"}),
    "drained": ({"request_id": "r"}, {}),
    "query": ({"request_id": "r"}, {}),
}
OWN = {"convoy_wire_version": 1, "convoy_attempt": 2, "convoy_epoch": "18446744073709551615", "convoy_edge": "b\u00e9",
       "convoy_exact_bytes": 8388001}


def write(kind, case, text):
    with open(os.path.join(HERE, f"transfer_{kind}.{case}.json"), "wb") as file:
        file.write(text.encode("utf-8"))


def dumps(kind, fields):
    return json.dumps({"msg_type": f"transfer_{kind}", **fields}, separators=(",", ":"))


for kind, (defaults, typical) in MESSAGES.items():
    full = {**defaults, **typical}
    if "request_id" in full:
        full["request_id"] = "0f8fad5b-d9cb-469f-a165-70867728950e"
        write(kind, "strange", dumps(kind, {**full, "request_id": STRANGE}))
    write(kind, "defaults", dumps(kind, defaults))
    write(kind, "typical", dumps(kind, full))
    write(kind, "own", dumps(kind, {**full, **OWN}))

# What a denoiser makes by hand when its output is staged for the next hop: no error there.
BY_HAND = {"request_id": "r", "staged_for_decoder": True, **PLACE, "data_size": 8388608, "manifest": MANIFEST,
           "scalar_fields": SCALARS}
write("done", "staged", dumps("done", BY_HAND))
write("done", "staged_nothing", dumps("done", {**BY_HAND, "pool_ptr": 0, "slot_offset": 0, "data_size": 0,
                                               "manifest": {}, "scalar_fields": {}}))
write("done", "staged_own", dumps("done", {**BY_HAND, "request_id": STRANGE, **OWN}))
write("staged", "raw", dumps("staged", MESSAGES["staged"][0]).replace('"scalar_fields":{}', f'"scalar_fields":{RAW}'))
# Lists that end in holes, or hold nothing else: hosts read the manifest and lose them, we read what lies beside it.
HOLES = {"convoy_wire_version": 1, "convoy_attempt": 2, "convoy_epoch": "170", "convoy_exact_bytes": 8388001,
         "convoy_manifest": {"list_lengths": {"prompt_embeds": 5, "nothing": 2, "empty": 0}}}
for kind in ("staged", "ready"):
    write(kind, "holes", dumps(kind, {**MESSAGES[kind][0], **MESSAGES[kind][1], **HOLES}))
for kind in ("staged", "ready"):
    write(kind, "priority", dumps(kind, {**MESSAGES[kind][0], **MESSAGES[kind][1], **OWN, "convoy_priority": -7}))
write("ready", "raw", dumps("ready", MESSAGES["ready"][0]).replace('"manifest":{}', f'"manifest":{RAW}'))
