"""The exceptions of the Slurm side.

PrecisionTimeError
└── SlurmError          something of Slurm or of its configuration stands in the way
    ├── PolicyError         the policy file is wrong: path of the field, value, what is expected
    ├── ProtocolError       a request line is malformed or too long
    ├── SourceError         Slurm's data cannot be read: which command, its error
    └── InstallError        an installation step cannot be done, or would break what is there
"""

from __future__ import annotations

from predictor.errors import PrecisionTimeError


class SlurmError(PrecisionTimeError):
    """Something of Slurm or of its configuration stands in the way."""


class PolicyError(SlurmError):
    """The policy file is wrong; the message names field, value and what is expected."""


class ProtocolError(SlurmError):
    """A request line is malformed, of another version, or too long."""


class SourceError(SlurmError):
    """Data of Slurm cannot be read; the message names the command and its error."""


class InstallError(SlurmError):
    """An installation step cannot be done; nothing was left half changed."""
