"""Network policies of the chart: who reaches whom, in both modes."""

from __future__ import annotations

from typing import Any

import pytest
from chart_render import needs_helm, render

pytestmark = needs_helm


def test_the_network_policy_lets_out_to_the_api_server_only() -> None:
    rendered = render({"networkPolicy": {"enabled": True, "apiServerPorts": [6443]}})
    policy = rendered.one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == [{"ports": [{"port": 6443, "protocol": "TCP"}]}]
    assert [p["port"] for rule in policy["ingress"] for p in rule["ports"]] == ["https", "metrics"]
    assert len(rendered.all("NetworkPolicy")) == 1


CLOSED: dict[str, Any] = {
    "scheduler": "second-scheduler",
    "networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
}


def test_the_second_scheduler_reaches_the_extender_and_is_let_in() -> None:
    rendered = render(CLOSED)
    theirs = rendered.one("NetworkPolicy", "-scheduler")["spec"]
    api_server, extender, names = theirs["egress"]
    assert [port["port"] for port in api_server["ports"]] == [443, 6443]
    assert sorted(port["protocol"] for port in names["ports"]) == ["TCP", "UDP"]
    assert {port["port"] for port in names["ports"]} == {53}
    (towards,) = extender["to"]
    assert picks(towards["podSelector"], rendered.pod())
    assert [port["port"] for port in extender["ports"]] == ["https"]
    assert picks(theirs["podSelector"], rendered.pod("-scheduler"))
    assert not picks(theirs["podSelector"], rendered.pod())
    ours = rendered.one("NetworkPolicy")["spec"]
    callers = ours["ingress"][0]["from"]
    assert callers[0] == {"ipBlock": {"cidr": "10.0.0.0/8"}}
    assert picks(callers[1]["podSelector"], rendered.pod("-scheduler"))


def picks(selector: dict[str, Any], pod: dict[str, Any]) -> bool:
    return bool(selector["matchLabels"].items() <= pod["metadata"]["labels"].items())


@pytest.mark.parametrize("given", [CLOSED | {"scheduler": "extender"}, CLOSED])
def test_who_may_call_is_only_who_is_named(given: dict[str, Any]) -> None:
    rule = render(given).one("NetworkPolicy")["spec"]["ingress"][0]
    assert len(rule["from"]) == (2 if given["scheduler"] == "second-scheduler" else 1)
    open_ = render(given | {"networkPolicy": {"enabled": True}}).one("NetworkPolicy")
    assert "from" not in open_["spec"]["ingress"][0]
