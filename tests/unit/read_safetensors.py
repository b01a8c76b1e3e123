#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a .safetensors file with nothing of ours and prints name, dtype, shape and sha256 of each tensor, one a line,
in the order of the header, after one line of metadata. Usage: read_safetensors.py FILE"""
import hashlib
import json
import struct
import sys

with open(sys.argv[1], "rb") as file:
    everything = file.read()
(length,) = struct.unpack_from("<Q", everything)
header = json.loads(everything[8 : 8 + length].decode("utf-8"))
data = everything[8 + length :]
metadata = header.pop("__metadata__", {})
print(" ".join(f"{key}={value}" for key, value in metadata.items()))
covered = 0
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    if begin != covered:
        sys.exit(f"{name} begins at {begin}, not at {covered}")
    covered = end
    shape = "[" + ",".join(str(size) for size in entry["shape"]) + "]"
    print(name, entry["dtype"], shape, hashlib.sha256(data[begin:end]).hexdigest())
if covered != len(data):
    sys.exit(f"the tensors end at {covered}, the data at {len(data)}")
