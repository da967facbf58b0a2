"""A program that prints which pages of a file are in memory."""

import os

# Reads only public files and writes only its own, as the user of the agent should. It needs the one capability because
# only root may reach the checkout or its Python. A test user other than root runs as itself.
READER = (
    (
        "setpriv",
        *("--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
        "--securebits=+no_setuid_fixup",  # or access(2) would ignore the capability
        *(f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps")),
    )
    if os.geteuid() == 0
    else ()
)
