"""The queue of a scheduler as an installed adapter reads it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotInstalledError, PrecisionTimeError, ReportError
from .plugins import declared, remedy

if TYPE_CHECKING:
    from ..site.capacity.live import Live

GROUP = "precision_time.queue"


def read_queue(name: str) -> Live:
    """The queue of one scheduler.

    Raises NotInstalledError without what its adapter needs, and what the adapter raises where the
    scheduler does not answer.
    """
    try:
        found: Live = declared(GROUP)[name].load()()
    except ModuleNotFoundError as error:
        mend = remedy(GROUP, name, error)
        if mend is None:
            raise
        raise NotInstalledError(f"{error}: {mend}") from error
    return found


def queue_here() -> Live:
    """The queue of the first scheduler that answers; raises ReportError where none does."""
    reasons = []
    for name in declared(GROUP):
        try:
            return read_queue(name)
        except PrecisionTimeError as error:
            reasons.append(f"{name}: {error}")
    raise ReportError(
        f"no scheduler answers here ({'; '.join(reasons) or 'no adapter is installed'}): "
        "--from history and --from FILE need none"
    )
