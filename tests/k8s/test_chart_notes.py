"""What Helm says after an installation is true of what was installed."""

from __future__ import annotations

from chart_files import values
from chart_render import NAMESPACE, needs_library, notes, render


@needs_library
def test_the_notes_tell_what_was_installed() -> None:
    label = f"kubectl label namespace YOUR-NAMESPACE {values()['admission']['label']}=fill"
    extender, second = notes(), notes({"scheduler": "second-scheduler"})
    assert "get configmap pt-precision-time-scheduler \\" in extender
    assert f"kubectl -n {NAMESPACE} " in extender
    assert "mkdir -p /etc/kubernetes/precision-time" in extender
    assert "BEFORE THAT" in extender
    assert "BEFORE THAT" not in notes({"service": {"clusterIP": "10.96.0.99"}})
    assert "`schedulerName: precision-time`" in second
    assert "kubectl -n" not in second
    assert label in extender
    assert label in second
    for silent in ({"admission": {"mode": "off"}}, {"config": {"deadline": {"mode": "off"}}}):
        assert label not in notes(silent)
    stated = notes({"admission": {"mode": "policy"}, "kubeVersion": "1.36.2"})
    assert "that state `precision-time.io/predicted-p95`" in stated


@needs_library
def test_the_notes_say_where_an_authority_yet_to_be_issued_is_looked_for() -> None:
    given = {"certificates": {"source": "certManager"}}
    assert render(given).extender()["tlsConfig"]["caFile"] in notes(given)
    assert "ca.crt" not in notes()
