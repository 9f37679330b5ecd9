"""What docs/how-to/slurm.md tells admins to look for is what the hook writes."""

from __future__ import annotations

import re
from pathlib import Path

from fake_daemon import daemon
from lua_hook import Hook

from slurm_plugin.protocol import HookAnswer

PAGES = Path(__file__).parents[3] / "docs"
DOCS = "\n".join((PAGES / f / "slurm.md").read_text("utf-8") for f in ("how-to", "reference"))
GREPS = re.findall(r"grep '(precision-time: [^']+)' slurmctld\.log", DOCS)
OUTCOMES = re.findall(r"`(\w+)`", re.search(r"`outcome` in slurmctld.*?\n\n", DOCS, re.S)[0])  # type: ignore[index]


def test_every_line_and_outcome_that_the_docs_name_is_written(hook: Hook, path: Path) -> None:
    calls = [hook.submit(), hook.submit(name="paused")]
    hook.configure(breaker_s=0.0)
    with daemon(path, HookAnswer(log="reason=set", time_limit=20, ttl_s=60)):
        calls += [hook.submit(), hook.submit()]
    with daemon(path, HookAnswer(log="reason=off", ttl_s=0)):
        calls.append(hook.submit(name="none"))
    with daemon(path, HookAnswer(log="reason=set", time_limit=10**8)):
        calls.append(hook.submit(name="refused"))
    calls.append(hook.submit(name="skipped", comment="x" * 5000))
    told = "\n".join(call.log() + "\n" + call.log("debug") for call in calls)
    assert len(GREPS) == 2
    assert [text for text in GREPS if text not in told] == []
    assert len(OUTCOMES) == 8
    assert [name for name in OUTCOMES[1:] if f"outcome={name}" not in told] == []
