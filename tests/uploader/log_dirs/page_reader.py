"""A program that says which pages of a file are in memory."""

import os

# Reads what anybody may read and writes nothing that is not its own, as the user of the agent should; it needs the one
# capability because the checkout, or its Python, may lie where only we may look. Whoever is not root is that user.
READER = (
    (
        "setpriv",
        *("--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
        "--securebits=+no_setuid_fixup",  # or access(2) would not go by the capability
        *(f"--{kind}=-all,+dac_read_search" for kind in ("bounding-set", "inh-caps", "ambient-caps")),
    )
    if os.geteuid() == 0
    else ()
)
