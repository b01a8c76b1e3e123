# SPDX-License-Identifier: Apache-2.0
VERSION = "1.0.0"
