"""The commands of a shell script, read and never run.

Quotes, comments, continued lines, here-documents, arrays, and variables that the script sets to
plain text, sums of whole numbers, and ``if`` and ``case`` of known words are understood. What only
running could tell (``$(...)``, variables set in another branch or a loop, or not at all) becomes
UNKNOWN inside the word. Every text is
accepted, and the work is bounded by its length.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import takewhile
from operator import add, floordiv, mod, mul, sub
from posixpath import join

# Stands in a word for what cannot be known without running the script.
UNKNOWN = "\ue000"
MAX_SCRIPT = 64 * 1024
MAX_VALUE = 8 * 1024
MAX_WORDS = 1000
MAX_EXPANDED = 256 * 1024
MAX_COMMANDS = 2000
MAX_SOURCED = 4
MAX_AGAIN, MAX_DEEP = 100, 8  # calls of functions, one after and one in another
MAX_SUBSTITUTED = 200

# The tokens: every text matches, and none makes the matching slow.
_TOKEN = re.compile(
    r"""(?P<join>\\\n)
    |(?P<blank>[ \t\r\f\v]++)
    |(?P<comment>(?<![^\s;&|()])\#[^\n]*+)
    |(?P<single>'[^']*+')
    |(?P<ansi>\$'(?:[^'\\]|\\.)*+')
    |(?P<double>"(?:[^"\\$]++|\\.|\$\((?:[^()"]++|"(?:[^"\\]|\\.)*+"
    |\((?:[^()"]++|"(?:[^"\\]|\\.)*+"|\([^()]*+\))*+\))*+\)|\$)*+")
    |(?P<escaped>\\.)
    |(?P<dollar>\$\(|`[^`]*+`|\$\{(?:\$\{[^{}\n]{1,200}+\}|[^}\n]){1,200}+\}
    |\$(?:[A-Za-z_]\w*+|[0-9@*\#?$!-]))
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
_INSIDE = re.compile(
    r"""\\(?P<escaped>["$`\\\n])
    |(?P<dollar>\$\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\)|\$\([^"]*+|`[^`]*+`
    |\$\{(?:\$\{[^{}\n]{1,200}+\}|[^}\n]){1,200}+\}|\$(?:[A-Za-z_]\w*+|[0-9@*\#?$!-]))
    |(?P<plain>[^\\$`]++|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# All words of an array, or of the arguments.
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}|\$([@*])", re.ASCII)
# Name, operator and word of ${NAME:-word}, without the braces.
_PARAMETER = re.compile(r"(\w+|[@*#?$!-])(?:\[[@*]\])?(?::?([-=+?])(.*))?", re.ASCII | re.S)
# Around the number of a document, in its place in the text.
_MARK = "\ue001"
_HERE = re.compile(r"(?<!<)<<-?[ \t]*(?:'(\w+)'|\"(\w+)\"|\\?(\w+))", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.S)
_SUM = re.compile(r"\$\((?:\((?P<sum>.{1,200})\)|\s*expr (?P<expr>.{1,200}))\)", re.ASCII | re.S)
# conda shell.bash hook, pyenv init -, ssh-agent: what eval reads of these starts nothing.
_HOOK = re.compile(
    r"[\w./~'\"${}-]*(?:conda|mamba|pyenv|poetry|ssh-agent)\b['\"]?(?:[^;|&()\n]*\b(?:hook|init|activate)\b|(?<=agent)"
    r")[^;|&()\n]*(?:>&1|&1)?$",
    re.ASCII,
)
_NAME = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?", re.ASCII)
_CHANGED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--)", re.ASCII)  # in (( ))
_NO_SUM = (SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError)
_OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: floordiv, ast.Mod: mod}
_MOVES = ("cd", "pushd", "popd")
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SET_BY_SLURM = ("SLURM_", VISIBLE)
JOINS = ("MASTER_", "WORLD_SIZE", "RANK")  # variables by which processes find each other
_TOLD = ("CUDA_", "NCCL_", "TORCH_", *JOINS)  # variables that any program heeds
_SETTERS = ("export", "declare", "typeset", "local", "readonly")
_PYTHON = re.compile(r"(?:^|/)python[\d.]*$", re.ASCII)
_SHELL = re.compile(r"(?:^|/)(?:ba|z)?sh$|\.(?:sh|bash|slurm|sbatch)$")
_BRANCHES = frozenset(("if", "then", "elif", "else", "fi", "case", "esac"))
_EQUAL = {"=": True, "==": True, "-eq": True, "!=": False, "-ne": False}
_LESS = {"-lt": (0, False), "-ge": (0, True), "-gt": (1, False), "-le": (1, True)}
_LOOPS = ("for", "while", "until", "select")
_PREFIXES = ("then", "do", "else", "elif", "if", "while", "until", "!", "{", "fi", "done", "time")
_MANY = re.compile(rf"[*?\[{{{UNKNOWN}]")  # of patterns, {1..5} and what nobody knows
_TESTS = ("[", "[[", "test", "grep", "which", "command", "hash", "type")
# What of a token is text.
_TEXT = {
    "plain": slice(None),
    "other": slice(None),
    "single": slice(1, -1),
    "ansi": slice(2, -1),
    "escaped": slice(1, None),
}
_KEYWORDS = frozenset((*_PREFIXES, *_BRANCHES, *_LOOPS, "function"))


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words without assignments, redirections and keywords.

    ``repeated`` where it stands in a loop or a function: it may run more or less than once.
    ``exported`` are the variables that a shell script it starts would see, of another its devices'.
    """

    words: tuple[str, ...]
    repeated: bool
    exported: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = ""


@dataclass(slots=True)
class _Branches:
    """An ``if`` or ``case``: whether the branch that is read runs, None where that is not known.

    ``taken`` says the same of the branches before it; ``word`` is what a ``case`` compares, and
    ``tests`` what decides on the next branch, None once it is read.
    """

    word: str | None = None
    live: bool | None = None
    taken: bool | None = False
    tests: list[bool | None] | None = None

    def enter(self) -> None:
        """The branch that the tests decide on."""
        tests, self.tests = self.tests or [], None
        some = True if True in tests else None if None in tests else False
        found = some if self.word is not None or len(tests) == 1 else None  # any pattern will do
        fresh = self.taken is False
        self.live = False if self.taken or found is False else (found and fresh) or None
        self.taken = self.taken or (None if found is None else found or self.taken)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function that is read: how much text is left behind it, and what it hides.

    What it sets holds behind it, unless it runs ``aside`` in a process of its own, or only perhaps.
    """

    rest: int
    arguments: tuple[str, ...]
    hidden: dict[str, str | None]
    aside: bool
    piped: bool
    perhaps: bool


# The text of a file, sourced in a directory; None where it is not to be read.
Sourced = Callable[[str, str | None], str | None]


@dataclass(frozen=True, slots=True)
class Script:
    """Commands in the order of the text, and the here-documents with variables filled in.

    ``substituted`` are the texts of ``$(...)``, which run too.
    """

    commands: tuple[Command, ...]
    documents: tuple[str, ...] = ()
    substituted: tuple[str, ...] = ()


def read_script(
    text: str,
    variables: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    sourced: Sourced | None = None,
) -> Script:
    """Read a script; ``variables`` are known from outside, ``arguments`` are ``$1`` and on.

    ``sourced`` gives the text of a file that the script sources, after the commands so far.
    """
    number = UNKNOWN if any(UNKNOWN in word for word in arguments) else str(len(arguments))
    known = {**(variables or {}), "#": number}
    known |= {str(i): word for i, word in enumerate(arguments, 1)}
    reader = _Reader(known, tuple(arguments), set(variables or ()), sourced)
    reader.insert(f"{text[:MAX_SCRIPT]}\n", 0)
    return reader.read()


def _without_documents(text: str, documents: list[tuple[str, bool]]) -> str:
    """The text with a mark in place of each here-document; one without an end takes the rest.

    ``documents`` gets their texts, and whether the shell would leave ``$`` in them alone.
    """
    kept: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        match = None if line.lstrip().startswith("#") or "((" in line else _HERE.search(line)
        if match is None:
            kept.append(line)
            continue
        end = match[1] or match[2] or match[3]
        body = takewhile(lambda inner: inner.strip() != end, lines)  # noqa: B023
        mark = f" {_MARK}{len(documents)}{_MARK} "
        documents.append(("\n".join(body), match[3] is None))
        kept.append(line[: match.start()] + mark + line[match.end() :])
    return "\n".join(kept)


@dataclass(slots=True)
class _Reader:
    """One pass over the tokens, with what the script has set so far."""

    variables: dict[str, str]
    arguments: tuple[str, ...]
    exported: set[str]
    sourced: Sourced | None
    text: str = ""
    sources: list[tuple[str, bool]] = field(default_factory=list)
    sourced_files: int = 0
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    substituted: dict[str, None] = field(default_factory=dict)
    document: str = UNKNOWN  # of the command so far
    words: list[str] = field(default_factory=list)
    word: str | None = None
    array: str | None = None
    array_from: int = 0
    dropping: bool = False
    branches: list[_Branches] = field(default_factory=list)
    loops: list[bool | None] = field(default_factory=list)  # None: it never turns
    function: bool = False  # one that nothing calls
    functions: dict[str, str] = field(default_factory=dict)  # their texts, by name
    defined: str = ""  # the function that is passed over, to be read where it is called
    depth: int = 0
    begun: int = 0
    calls: list[_Call] = field(default_factory=list)
    shells: list[tuple[dict[str, str | None], str | None]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    again: int = 0
    position: int = 0
    turned: set[str] = field(default_factory=set)
    tested: bool = False
    joined: bool = False
    pipes: bool = False  # what this command prints is read by the next one
    piped: bool = False  # what the last one printed is read by this one
    aside: bool = False  # this one runs in a process of its own
    budget: int = MAX_EXPANDED
    directory: str | None = ""

    def insert(self, text: str, position: int) -> None:
        """Go on with a text at a position."""
        clean = re.sub("[\x00\ue000\ue001]", "?", text).replace("\r\n", "\n")
        body = _without_documents(clean, self.sources)
        self.text = self.text[:position] + body + self.text[position:]

    def read(self) -> Script:
        """Read the whole text."""
        self._read_on()
        for name, text in list(self.functions.items()):  # what nothing here calls may be called
            if name not in self.called and not name.startswith("!"):
                self.function, self.arguments = True, (UNKNOWN,)
                self.text += text
                self._read_on()
        if self.defined:  # one without an end, in which all that follows is lost
            self.commands.append(Command((self.defined,), True))
        return Script(tuple(self.commands), tuple(self.documents), tuple(self.substituted))

    def _read_on(self) -> None:
        while self.position < len(self.text) and len(self.commands) < MAX_COMMANDS:
            match = _TOKEN.match(self.text, self.position)
            assert match is not None
            assert match.lastgroup is not None
            self.position, before = match.end(), len(self.commands)
            if match.lastgroup == "dollar" and match[0] == "$(":
                end = _closing(self.text, self.position)
                self._add(self._sum(self.text[self.position - 2 : end]))
                self.position = end
            else:
                self._token(match.lastgroup, match[0])
            if len(self.commands) > before:
                self._source(self.position)
            while self.calls and len(self.text) - self.position <= self.calls[-1].rest:
                self._return()
        self._end_command()

    def _source(self, position: int) -> None:
        """Read a file that the last command sources as if it stood here."""
        words = self.commands[-1].words
        if words[0] not in ("source", ".") or len(words) < 2 or self.sourced is None:
            return
        self.sourced_files += 1
        text = self.sourced(words[1], self.commands[-1].directory)
        if text is not None and self.sourced_files <= MAX_SOURCED and UNKNOWN not in words[1]:
            self.insert(f"{text[:MAX_SCRIPT]}\n", position)

    def _token(self, kind: str, token: str) -> None:
        if kind not in ("blank", "end"):
            self.joined = False
        if kind == "blank" or (kind == "end" and token == "\n" and self.array is not None):
            self._end_word()
        elif kind in _TEXT:
            self._add(token[_TEXT[kind]])
        elif kind == "double":
            if whole := _ARRAY.fullmatch(token[1:-1]):
                self._spread(self._array(whole[1] or whole[2]))
            else:
                self._add("".join(self._inside(token[1:-1])))
        elif kind == "dollar":
            self._expand(token)
        elif kind == "document":
            text, quoted = self.sources[int(token[1:-1])]
            self.documents.append(text if quoted else "".join(self._inside(text)))
            self.document = self.documents[-1]
        elif kind == "redirect":
            self._end_word()
            self.dropping = True
        elif kind == "end" and token == "|" and self._pattern():
            pass
        elif kind == "end":  # what follows `||`, or `&&` after a test, may not run
            calls, self.pipes = len(self.calls), token in ("|", "|&")
            self.aside = self.piped or self.pipes or token == "&"
            self._end_command()
            self.piped = self.pipes and len(self.calls) == calls  # else behind what is called
            if token == ";;" and self.branches and self.branches[-1].word is not None:
                self.branches[-1].tests = []
            goes_on = token == "\n" and self.joined
            if token not in ("&&", "|") and not goes_on:
                self.tested = token == "||"
            self.joined = goes_on or token in ("&&", "||")
        elif kind in ("open", "close"):
            self._bracket(token)

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.words += [] if self.dropping else [self.word]
            self.word, self.dropping = None, False
            if len(self.words) == 2 and self.words[0] == "function" and not self.defined:
                self._define(self.words.pop())  # function name {
                self.words.clear()

    def _bracket(self, token: str) -> None:
        if token == "(" == self.text[self.position - 2 : self.position - 1] and not self.word:
            end = _closing(self.text, self.position)
            changed = _CHANGED.findall(self.text, self.position, end)
            self.variables |= dict.fromkeys(changed, UNKNOWN)
            self.position = end
        elif (
            token == "(" and self.word is not None and re.fullmatch(r"[A-Za-z_]\w*\+?=", self.word)
        ):
            self.words = self._structure(self.words)
            self.array, self.word, self.array_from = self.word[:-1], None, len(self.words)
        elif token == ")" and self.defined and not (self.depth or self.words or self.word):
            self.begun = self.position
        elif token == ")" and self.array is not None:
            self._end_word()
            if not self._dead():
                self._set_array(self.array, tuple(self.words[self.array_from :]))
            del self.words[self.array_from :]
            self.array = None
        elif self.array is None and token == ")" and self._pattern():
            self.branches[-1].enter()
        elif self.array is None:
            words = self.words if self.word is None else [*self.words, self.word]
            if self.defined and token == "(" and not (words or self.depth):
                self.defined = ""  # name() ( ... ), which is read once, and whose name is unknown
            led = {*words[:-1]} <= {*_PREFIXES, "function"}  # then f() {
            if token == "(" and words and led and words[-1] not in _KEYWORDS and not self.defined:
                self._structure(words[:-1])
                self._define(words[-1])
                self.words, self.word = [], None
                return
            self._end_command()
            if token != ")":
                self.shells.append(({}, self.directory))
            elif self.shells:  # what was set within holds there alone
                before, self.directory = self.shells.pop()
                self._restore(before)

    def _set_array(self, name: str, words: tuple[str, ...]) -> None:
        plain = name.removesuffix("+")
        if not self._holds(plain, self.arrays, adds=name.endswith("+")):
            flags = (
                f"{word.partition('=')[0]}={UNKNOWN}"  # one that may not be there keeps its name
                if word.startswith("-") or "=" in word
                else UNKNOWN
                for word in words
            )
            words = tuple(flags) if name.endswith("+") else (UNKNOWN,)
        if name.endswith("+"):
            words = self._spent(self.arrays.get(plain, ()) + words)
        self.arrays[plain] = words if len(words) <= MAX_WORDS else (UNKNOWN,)

    def _inside(self, text: str) -> Iterator[str]:
        for match in _INSIDE.finditer(text):
            if match.lastgroup == "escaped":
                yield "" if match[1] == "\n" else match[1]
            elif match.lastgroup == "plain":
                yield match[0]
            else:
                yield " ".join(self._value(match[0]))

    def _expand(self, token: str) -> None:
        """An unquoted expansion: its blanks separate words."""
        if whole := _ARRAY.fullmatch(token):
            self._spread(self._array(whole[1] or whole[2]))
            return
        text = " ".join(self._value(token))
        if text[:1].isspace():
            self._end_word()
        self._spread(text.split())
        if text[-1:].isspace():
            self._end_word()

    def _spread(self, words: Sequence[str]) -> None:
        for index, word in enumerate(words):
            if index:
                self._end_word()
            self._add(word)

    def _array(self, name: str) -> tuple[str, ...]:
        words = self.arguments if name in ("@", "*") else self.arrays.get(name, (UNKNOWN,))
        return self._spent(words)

    def _value(self, token: str) -> tuple[str, ...]:
        """What ``$NAME``, ``${NAME}`` or ``${NAME:-default}`` stands for."""
        if token.startswith("$("):
            return (self._sum(token),)
        if token.startswith("`"):
            return (self._substitute(token[1:-1]),)
        match = _PARAMETER.fullmatch(token[2:-1] if token.startswith("${") else token[1:])
        if match is None:
            return (UNKNOWN,)
        name, operator, default = match[1], match[2], match[3]
        if name in self.arrays or name in ("@", "*"):
            return self._array(name)
        own = self.function and (name.isdigit() or name == "#")  # those of each call
        known = None if own else self.variables.get(name)
        if operator is None or (known and operator in "-=?"):
            return self._spent((UNKNOWN if known is None else known,))
        if name.startswith(_SET_BY_SLURM):  # what stands in for it is not what it will be
            return (UNKNOWN,)
        if operator in "-=":
            plain = "".join(self._inside(default)).strip("'\"")
            if operator == "=" and known is None:
                self._assign(f"{name}={plain}")
            return (plain,)
        return (UNKNOWN,)

    def _sum(self, token: str) -> str:
        """The value of ``$((N * 8))`` or ``$(expr $N / 8)``; UNKNOWN where a part is."""
        if (match := _SUM.fullmatch(token)) is None:
            return self._substitute(token[2:-1])
        told = match["sum"] or match["expr"].replace("\\*", "*")
        text = _NAME.sub(lambda name: self.variables.get(name[1], UNKNOWN), told).strip()
        with suppress(*_NO_SUM):
            return str(_whole(ast.parse(text, mode="eval").body))
        return UNKNOWN

    def _substitute(self, text: str) -> str:
        """Keep the text of ``$(...)``; what prepares the shell for an environment says nothing."""
        if _HOOK.match(text):
            return ":"
        if (name := "".join(text.split()[:1])) in self.functions:
            text = self.functions[name]
            self.called.add(name)
        if not self._dead():
            self.substituted[text if len(self.substituted) < MAX_SUBSTITUTED else UNKNOWN] = None
        return UNKNOWN

    def _spent(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Words, as long as what is left of the budget of expansions holds them."""
        self.budget -= sum(map(len, words))
        return words if self.budget > 0 else (UNKNOWN,)

    def _end_command(self) -> None:
        self._end_word()
        words, self.words = self._structure(self.words), []
        self.dropping, self.array = False, None
        if self.branches and self.branches[-1].tests is not None and words:
            # words may differ in each turn
            self.branches[-1].tests.append(None if self.repeated else _verdict(words))
        if self._dead():
            return
        plain = [i for i, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)]
        if words and (not plain or words[0] in _SETTERS):
            if self.calls and words[0] in ("local", "declare", "typeset") and "-g" not in words:
                for name in (word.partition("=")[0] for word in words[1:]):
                    self.calls[-1].hidden.setdefault(name, self.variables.get(name))
            for word in words:
                self._assign(word)
                if "-n" in words:  # another name of what it is set to
                    self.variables[word.partition("=")[2]] = UNKNOWN
            if words[0] == "export" or "-x" in words:
                self.exported |= {word.partition("=")[0].rstrip("+") for word in words[1:]}
        elif plain:
            given, words = words[: plain[0]], words[plain[0] :]
            if self._evaluate(words) or self._call(words, given):
                return
            if _PYTHON.search(words[0]) and words[1:] in ([], ["-"]) and self.document != UNKNOWN:
                words = [words[0], "-c", self.document]
            self._forget(words)
            seen = self._seen_by(words, given)
            self.commands.append(Command(tuple(words), self.repeated, seen, self.directory))
            self.document = UNKNOWN
            if words[0] in _MOVES:
                self.directory = None if self.repeated else self._moved(words)
            self.tested = self.tested or words[0] in _TESTS

    def _define(self, name: str) -> None:
        """Pass over a function up to its end, to read it where it is called."""
        self.functions.pop(name, None)
        self.defined, self.depth, self.begun = name, 0, self.position
        if self._dead(defined=False):
            self.defined = f"!{name}"  # of a branch that does not run
        elif self.repeated or any(one.live is None for one in self.branches):
            self.defined = f"?{name}"

    def _evaluate(self, words: list[str]) -> bool:
        """Go on with the text of ``eval``, or with that of ``trap`` as if it ran here."""
        text = f"{' '.join(words[1:])}\n" if words[0] == "eval" else ""
        if words[0] == "trap" and len(words) > 2 and not words[1].startswith("-"):
            text = f"({words[1]}\n)\n"
        if not text or self._deep([text]):
            return False
        self.text = self.text[: self.position] + text + self.text[self.position :]
        return True

    def _call(self, words: list[str], given: list[str]) -> bool:
        """Go on with the text of a function that is called, unless that may never end."""
        text = self.functions.get(words[0]) if words else None
        if text is None or given or len(self.calls) >= MAX_DEEP or self._deep([text]):
            return False
        self.called.add(words[0])
        names = [*"#0123456789", *map(str, range(10, len(words)))]
        hidden = {name: self.variables.get(name) for name in names}
        rest, how = len(self.text) - self.position, (self.aside, self.pipes, self.tested)
        self.calls.append(_Call(rest, self.arguments, hidden, *how))
        if self.aside or self.tested:
            self.shells.append(({}, self.directory))
        self.arguments = self._spent(tuple(words[1:]))
        unknown = any(UNKNOWN in word for word in self.arguments)
        told = dict(enumerate(self.arguments, 1))
        for name in names:
            self.variables.pop(name, None)
        self.variables |= {str(at): word for at, word in told.items()}
        self.variables["#"] = UNKNOWN if unknown else str(len(told))
        self.text = self.text[: self.position] + text + self.text[self.position :]
        return True

    def _deep(self, words: list[str]) -> bool:
        """Whether more of the text is read again than there may be."""
        self.again += 1
        return self.again > MAX_AGAIN or self._spent(tuple(words)) != tuple(words)

    def _return(self) -> None:
        """Behind a function that was called."""
        self._end_command()
        call = self.calls.pop()
        self.arguments, self.piped = call.arguments, call.piped
        if (call.aside or call.perhaps) and self.shells:
            before, directory = self.shells.pop()
            if call.aside:
                self.directory = directory
                self._restore(before)
            else:
                self.directory = directory if directory == self.directory else None
                for name in before:
                    self._assign(f"{name}={UNKNOWN}")
        self._restore(call.hidden)

    def _restore(self, hidden: Mapping[str, str | None]) -> None:
        for name, value in hidden.items():
            self.variables.pop(name, None)
            if value is not None:
                self.variables[name] = value

    def _moved(self, words: list[str]) -> str | None:
        """Where ``cd`` leads; not known where a variable says it."""
        to = words[1] if len(words) == 2 and words[0] == "cd" else UNKNOWN
        lost = self.directory is None and not to.startswith("/")
        known = not (lost or UNKNOWN in to or to.startswith(("-", "~")))
        return join(self.directory or "", to) if known else None

    def _seen_by(self, words: list[str], given: list[str]) -> Mapping[str, str]:
        """What a shell that a command starts knows of variables; any other program, of devices."""
        seen = {name: self.variables[name] for name in self.exported & self.variables.keys()}
        seen |= {name: value for name, _, value in (word.partition("=") for word in given)}
        shell = any(_SHELL.search(word) for word in words)
        return seen if shell else {k: v for k, v in seen.items() if k.startswith(_TOLD)}

    def _forget(self, words: list[str]) -> None:
        """What commands that set variables by themselves leave unknown."""
        first, given = words[0], words[1:]
        if first in ("read", "unset", "mapfile", "readarray"):
            for word in given:
                self.arrays.pop(word, None)
                self.variables[word] = UNKNOWN
            if first == "read" and given[-3:-1] == ["-d", ""]:  # a whole document into one
                self._assign(f"{given[-1]}={self.document}")
        if first == "let" or given[:1] == ["-v"]:  # printf -v NAME
            names = (_NAME.match(word) for word in given)
            self.variables |= {name[1]: UNKNOWN for name in names if name}
        options = not given or given[0].startswith(("-", "+"))  # of the shell, not `$1` and on
        if first == "shift" or (first == "set" and ("--" in given or not options)):
            self.arguments = (UNKNOWN,)
            self.variables |= dict.fromkeys("#0123456789", UNKNOWN)

    def _structure(self, words: list[str]) -> list[str]:
        """Follow branches, loops and functions; the command that keywords lead."""
        for index, first in enumerate(words):
            self._branch(first, words[index + 1 : index + 2])
            if self.defined and first in ("{", "}"):
                self.depth += 1 if first == "{" else -1
                if self.depth == 0:
                    self.functions[self.defined] = f"{self.text[self.begun : self.position]}\n"
                    self.defined = ""
            elif first == "done":
                self._turn()
            elif first in _LOOPS:
                self._loop(words[index:])
            if first in ("for", "select", "case", "esac", "function"):
                return []
            if first not in (*_PREFIXES, "}"):
                return words[index:]
        return []

    def _loop(self, words: list[str]) -> None:
        """Enter a loop; one over a single word is none, one whose test fails is a dead branch."""
        test = words[1:] if words[0] == "while" and not self.repeated else []
        none = test[:1] == ["getopts"] and self.variables.get("#") == "0"
        if none or (test and _verdict(test) is False):
            self.loops.append(None)
            self.branches.append(_Branches(live=False))
            return
        once = words[0] == "for" and words[2:3] == ["in"] and len(words) == 4
        word = words[3] if once and not _MANY.search(words[3]) else UNKNOWN
        self.loops.append(word == UNKNOWN)
        if words[0] in ("for", "select") and not self.defined:
            self.variables.update(dict.fromkeys(words[1:2], word))

    def _branch(self, word: str, following: list[str]) -> None:
        """Follow the keywords of ``if`` and ``case``."""
        if word == "if":
            self.branches.append(_Branches(tests=[]))
        elif word == "case":
            self.branches.append(_Branches(following[0] if following else UNKNOWN, tests=[]))
        elif not self.branches or word not in (*_BRANCHES, "!"):
            return
        elif word in ("fi", "esac"):
            self.branches.pop()
        elif word == "elif":
            self.branches[-1].tests = []
        elif word == "!" and self.branches[-1].tests is not None:
            self.branches[-1].tests.append(None)
        elif word == "else":
            self.branches[-1].tests = [True]
            self.branches[-1].enter()
        elif word == "then":
            self.branches[-1].enter()

    def _pattern(self) -> bool:
        """Whether the words so far are a pattern of a ``case``, which is compared then."""
        self._end_word()
        if self.words[:1] == ["case"] and "in" in self.words:  # on the line of its first pattern
            at = self.words.index("in") + 1
            self._structure(self.words[:at])
            del self.words[:at]
        case = self.branches[-1] if self.branches else _Branches()
        if case.word is None or case.tests is None or "esac" in self.words:
            return False
        for pattern in self.words:
            known = UNKNOWN not in pattern + case.word and not self.repeated
            case.tests.append(fnmatchcase(case.word, pattern) if known or pattern == "*" else None)
        self.words = []
        return True

    def _dead(self, *, defined: bool = True) -> bool:
        """Whether what stands here is in a branch that does not run, or in a function's text."""
        return bool(defined and self.defined) or any(
            one.live is False and one.tests is None for one in self.branches
        )

    @property
    def repeated(self) -> bool:
        """Whether this stands in a loop or function: it may run never, or more than once."""
        return any(self.loops) or self.function

    def _turn(self) -> None:
        """Leave a loop; behind the last nobody knows whether what it set was set."""
        if self.loops and self.loops.pop() is None:
            del self.branches[-1:]
        if not self.repeated:
            self.variables |= dict.fromkeys(self.turned, UNKNOWN)
            self.arrays |= dict.fromkeys(self.turned & self.arrays.keys(), (UNKNOWN,))
            self.turned.clear()

    def _holds(self, name: str, known: Mapping[str, object], *, adds: bool) -> bool:
        """Whether what a name is set to is the same in each turn, and set for certain."""
        unsure = any(o.live is None or o.tests is not None for o in self.branches)
        if self.tested or self.aside or unsure:
            return False
        before = known.get(name, UNKNOWN)
        alike = name in self.turned if adds else before in (UNKNOWN, (UNKNOWN,))
        if self.repeated:
            self.turned.add(name)
        return alike or not self.repeated

    def _assign(self, word: str) -> None:
        if (match := _ASSIGNMENT.fullmatch(word)) is None:
            return
        name, added, value = match.groups()
        if not self._holds(name, self.variables, adds=bool(added)):
            value = UNKNOWN
        if added:
            value = self.variables.get(name, "") + value
        if self.shells:
            self.shells[-1][0].setdefault(name, self.variables.get(name))
        self.variables[name] = value if len(value) <= MAX_VALUE else UNKNOWN
        self.arrays.pop(name, None)


def _whole(node: ast.expr) -> int:
    """The value of a sum of whole numbers; raises ValueError or KeyError for any other text."""
    if isinstance(node, ast.BinOp):
        return int(_OPERATORS[type(node.op)](_whole(node.left), _whole(node.right)))
    return int(ast.literal_eval(node))


def _verdict(words: Sequence[str]) -> bool | None:
    """Whether a test of known words is true; None of any other command."""
    test = list(words[1:-1] if words[0] in ("[", "[[") else words[1:])
    if words[0] not in ("[", "[[", "test") or any(UNKNOWN in word for word in test):
        return None
    if len(test) == 2 and test[0] in ("-z", "-n"):
        return (test[1] == "") == (test[0] == "-z")
    if len(test) != 3 or (words[0] == "[[" and re.search(r"[*?\[]", test[2])):
        return None
    if test[1] in _LESS and test[0].isdecimal() and test[2].isdecimal():
        turned, negated = _LESS[test[1]]
        pair = (int(test[0]), int(test[2]))
        return (pair[turned] < pair[1 - turned]) != negated
    return (test[0] == test[2]) == _EQUAL[test[1]] if test[1] in _EQUAL else None


def _closing(text: str, position: int) -> int:
    """The position behind the bracket that closes the one before ``position``, or the end."""
    depth = 1
    for match in re.compile(r"[()]").finditer(text, position):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text)
