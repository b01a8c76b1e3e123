#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the default trace on stdout: 400 requests in three minutes, in bursts with pauses between, from one seed. The
# generator stays below 2^53, so that every awk computes the same numbers. Usage: make.sh >default.jsonl
exec awk 'function draw(bound) { x = (x * 16807) % 2147483647; return x % bound }
BEGIN {
    x = 20240717
    for (i = 0; i < 400; i++) {
        kind = draw(100)
        if (kind < 6) t += 2000 + draw(4000)      # a pause in which everything drains
        else if (kind < 60) t += draw(600)
        else if (kind < 80) t += draw(20)         # a burst, the same or the next step
        input = kind % 9 == 0 ? 8000 + draw(60000) : 64 + draw(6000)
        output = kind % 5 == 0 ? draw(4) : 8 + draw(240)
        printf "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d}\n", t, input, output
    }
}'
