# SPDX-License-Identifier: Apache-2.0
"""What the stand-ins of several releases of the host have in common."""
