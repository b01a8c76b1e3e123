# SPDX-License-Identifier: Apache-2.0
"""The release of this package."""

VERSION = "1.1.0"
