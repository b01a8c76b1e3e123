#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The matrix of runs with next releases that are broken in known ways: its cells must fail.
exec "$(dirname "$0")/matrix.sh" self
