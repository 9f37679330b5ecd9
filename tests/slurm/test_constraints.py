"""What a constraint selects, how ours is added to the user's, and which one tells nodes apart."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.cluster import SlurmNode
from slurm_plugin.constraints import MAX_ALTERNATIVES, MAX_LENGTH, and_also, cover, parse

# What real slurmctld took: for each --constraint, those of 16 nodes that a job asking for one of
# them by name (-w) was queued for. A node is named after its features a, b, c, d ("0": none). Where
# 22.05.8 and 25.11.7 differ, there is one list for each.
OBSERVED: dict[str, str | dict[str, str]] = json.loads(
    Path(__file__).with_name("observed_constraints.json").read_text()
)
SUBSETS = [frozenset(c) for size in range(5) for c in combinations("abcd", size)]
UNDERSTOOD = [text for text in OBSERVED if parse(text) is not None]


def accepted(text: str) -> set[frozenset[str]]:
    constraint = parse(text)
    assert constraint is not None
    return {features for features in SUBSETS if constraint.matches(features)}


def observed(text: str) -> set[frozenset[str]]:
    seen = OBSERVED[text]
    assert isinstance(seen, str), f"versions of Slurm differ on {text}"
    return {frozenset(name.replace("0", "")) for name in seen.split()}


def node(name: str, *features: str) -> SlurmNode:
    return SlurmNode(name=name, features=frozenset(features))


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_constraint_selects_the_nodes_that_real_slurm_selects(text: str) -> None:
    assert accepted(text) == observed(text)


def test_operators_have_no_precedence_and_are_read_from_left_to_right() -> None:
    assert accepted("a|b&c") == accepted("(a|b)&c") != accepted("a|(b&c)")
    assert accepted("a&b|c&d") == {f for f in SUBSETS if f >= {"a", "b", "d"} or f >= {"c", "d"}}


def test_the_usual_forms_are_understood() -> None:
    usual = ["a", "a|b", "a&b", "a,b", "(a|b)&c", "c&(a|b)", "(a)&b", "[a|b]", "[a|b],c", "[a]&b"]
    assert set(usual) <= set(UNDERSTOOD)
    assert parse("gpu-80gb&ib.hdr&rack=7") is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a*2",
        "[a*1&b*1]",
        "(a|b)c",
        "((a))",
        "((a|b)&c)&d",
        "a&",
        "|a",
        "a||b",
        "()",
        "!a",
        "a & b",
        "a)",
        "(a",
        "[a|b",
        "[a|b]&[c|d]",
        "[a|b]|c",
        "c|[a|b]",
        "[a|b]&c|d",
        "[a&b]",
        "[(a|b)|c]",
        "([a|b])",
        "a&b" * MAX_LENGTH,
    ],
)
def test_other_forms_are_left_alone(text: str) -> None:
    assert parse(text) is None
    assert and_also(text or "a*2", "d") is None
    assert and_also("d", text) is None


@pytest.mark.parametrize(
    ("user", "ours", "joined"),
    [
        (None, "tensorcore", "tensorcore"),
        ("", "v100|a100", "v100|a100"),
        ("ib", "tensorcore", "ib&tensorcore"),
        ("ib&big", "tensorcore", "ib&big&tensorcore"),
        ("v100|a100", "tensorcore", "(v100|a100)&tensorcore"),
        ("a|b,c", "tensorcore", "(a|b,c)&tensorcore"),
        ("(a|b)&c", "tensorcore", "(a|b)&c&tensorcore"),
        ("a|(b&c)", "tensorcore", "a|(b&c)&tensorcore"),
        ("[rack1|rack2]", "tensorcore", "[rack1|rack2]&tensorcore"),
        ("ib", "v100|a100", "ib&(v100|a100)"),
        ("a|b", "v100|a100", "(a|b)&(v100|a100)"),
        ("[rack1|rack2]", "v100|a100", "[rack1|rack2]&(v100|a100)"),
        ("ib&tensorcore", "tensorcore", "ib&tensorcore"),
    ],
)
def test_ours_is_added_with_as_few_parentheses_as_slurm_needs(
    user: str | None, ours: str, joined: str
) -> None:
    assert and_also(user, ours) == joined


def test_a_user_who_allows_more_than_ours_is_not_taken_for_having_said_it() -> None:
    assert and_also("tensorcore|any", "tensorcore") == "(tensorcore|any)&tensorcore"


def test_nothing_is_joined_that_slurm_would_find_too_long() -> None:
    user = "&".join(["a" * 100] * 10)
    assert and_also(user, "b" * 10) is not None
    assert and_also(user, "b" * 20) is None


NAMES = st.sampled_from("abcd")


def chain(
    operands: st.SearchStrategy[str], operators: str, most: int = 3
) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=most)
    return pairs.map(lambda found: "".join(op + text for op, text in found)[1:])


GROUPS = chain(NAMES, "&|,").map("({})".format)
BRACKETS = chain(NAMES, "|").map("[{}]".format)
EXPRESSIONS = chain(NAMES | GROUPS | BRACKETS, "&|,")


@given(EXPRESSIONS, EXPRESSIONS)
def test_a_joined_constraint_selects_exactly_the_nodes_that_both_select(
    user: str, ours: str
) -> None:
    joined = and_also(user, ours)
    if joined is not None:
        assert accepted(joined) == accepted(user) & accepted(ours)


@given(EXPRESSIONS, NAMES)
def test_a_feature_can_be_added_to_every_constraint_we_understand(user: str, ours: str) -> None:
    assert (and_also(user, ours) is None) == (parse(user) is None)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_text_raises(user: str, ours: str) -> None:
    parse(user)
    and_also(user, ours)


A1, A2 = node("a1", "gpu", "tensorcore", "a100"), node("a2", "gpu", "tensorcore", "a100")
V1 = node("v1", "gpu", "tensorcore", "v100")
P1 = node("p1", "gpu", "p100")


@pytest.mark.parametrize(
    ("target", "others", "preferred", "chosen"),
    [
        ([A1, A2, V1], [P1], ["tensorcore"], "tensorcore"),
        ([A1, A2, V1], [P1], [], "tensorcore"),
        ([A1, A2], [V1, P1], ["tensorcore"], "a100"),
        ([P1, V1], [A1], ["tensorcore"], "p100|v100"),
        ([P1, A1, A2], [V1], [], "a100|p100"),
        ([A1, node("x")], [P1], [], "a100"),
        ([A1], [A2], [], None),
        ([A1], [A1], ["tensorcore"], None),
        ([node("x")], [A1], [], None),
        ([], [A1], [], None),
        ([A1, A2], [], ["gpu", "tensorcore"], "gpu"),
    ],
)
def test_the_simplest_constraint_that_covers_most_is_chosen(
    target: list[SlurmNode], others: list[SlurmNode], preferred: list[str], chosen: str | None
) -> None:
    assert cover(target, others, preferred) == chosen


def test_a_preferred_feature_gives_way_to_one_that_covers_more() -> None:
    nodes = [node("x", "new", "fast"), node("y", "fast")]
    assert cover(nodes, [], ["new"]) == "fast"


def test_at_most_four_features_are_joined() -> None:
    nodes = [node(name, name) for name in "abcdefg"]
    chosen = cover(nodes, [], ())
    assert chosen is not None
    assert len(chosen.split("|")) == MAX_ALTERNATIVES


FEATURE_SETS = st.lists(st.frozensets(st.sampled_from([*"abcdef", "g*", "h i"])), max_size=6)


@given(FEATURE_SETS, FEATURE_SETS, st.lists(st.sampled_from("abcdef"), max_size=3))
def test_the_chosen_constraint_never_selects_another_node(
    target: list[frozenset[str]], others: list[frozenset[str]], preferred: list[str]
) -> None:
    inside = [node(f"t{i}", *features) for i, features in enumerate(target)]
    outside = [node(f"o{i}", *features) for i, features in enumerate(others)]
    chosen = cover(inside, outside, preferred)
    usable = frozenset().union(*target) - frozenset().union(*others) - {"g*", "h i"}
    assert (chosen is None) == (not usable)
    if chosen is not None:
        constraint = parse(chosen)
        assert constraint is not None
        covered = sum(constraint.matches(features) for features in target)
        assert not any(constraint.matches(features) for features in others)
        assert covered >= max(sum(name in features for features in target) for name in usable)
