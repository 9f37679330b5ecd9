"""A child of a daemon that says one thing, and then nothing until the daemon ends.

    python -SE idle_child.py FILE ... CHANNEL

FILE holds what it says, as ``multiprocessing.connection`` would send it. Without imports it starts
in a fiftieth of the processor time of a child that decides or reads Slurm.
"""

from __future__ import annotations

import os
import sys

with open(sys.argv[1], "rb") as said:
    os.write(int(sys.argv[-1]), said.read())
while os.read(int(sys.argv[-1]), 65536):
    pass
