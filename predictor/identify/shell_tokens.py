"""The tokens of a shell script. Every text matches, and none makes the matching slow."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""(?P<join>\\\n)
    |(?P<blank>[ \t\r\f\v]++)
    |(?P<comment>(?<![^\s;&|()])\#[^\n]*+)
    |(?P<single>'[^']*+')
    |(?P<ansi>\$'(?:[^'\\]|\\.)*+')
    |(?P<double>"(?:[^"\\]|\\.)*+")
    |(?P<escaped>\\.)
    |(?P<dollar>\$\(|`[^`]*+`|\$\{[^}\n]{1,200}+\}|\$(?:[A-Za-z_]\w*+|[0-9@*\#?$!-]))
    |(?P<document>\ue001\d++\ue001)
    |(?P<redirect>\d*+(?:&>>?|[<>]&|>>|<<<|>\||[<>](?!\()))
    |(?P<end>;;|&&|\|\||\|&|[;&|\n])
    |(?P<open>[<>]?\()
    |(?P<close>\))
    |(?P<plain>[^\s'"\\;&|()<>$`\ue001]++)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Inside double quotes.
INSIDE = re.compile(
    r"""\\(?P<escaped>["$`\\\n])
    |(?P<dollar>\$\([^"]*+|`[^`]*+`|\$\{[^}\n]{1,200}+\}|\$(?:[A-Za-z_]\w*+|[0-9@*\#?$!-]))
    |(?P<plain>[^\\$`]++|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# All words of an array, or of the arguments.
ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$([@*])", re.ASCII)
# Name, operator and word of ${NAME:-word}, without the braces.
PARAMETER = re.compile(r"(\w+|[@*#?$!-])(?:\[[@*]\])?(?::?([-=+?])(.*))?", re.ASCII | re.S)
