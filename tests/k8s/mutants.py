"""JSON bent out of shape: values of another type, lost, doubled or nested."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        3,
        2.5,
        1e308,
        10**30,
        "",
        "x",
        "-1",
        "1e9",
        "9" * 400,
        "$(A)$(B)",
        "\x00",
        "\ud800",
        [],
        [None],
        [[]],
        {},
        {"": ""},
        {"metadata": []},
    ]
)


@st.composite
def mutants(draw: st.DrawFn, originals: Sequence[Any]) -> Any:
    """One of some JSON values with up to four places changed."""
    raw = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        places = list(_places(raw))
        holder, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            holder[key] = copy.deepcopy(draw(ODD))
        elif isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = [holder[key]]
        if not raw:
            break
    return raw


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])
