"""The commands of a shell script, read and never run.

What variables, arrays and arguments come to, which branches of known words are taken, and what
functions do where they are called is followed through its statements. What only running could
tell (``$(...)``, variables set in one branch of several, or not at all) becomes UNKNOWN inside the
word. Every text is accepted, and the work is bounded by its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise, takewhile
from posixpath import basename, join

from . import shell_syntax as tree
from .shell_syntax import UNKNOWN, Function, Redirected, Simple, Statement, Statements, parse
from .shell_words import CHANGED, Scope, Value, Words

MAX_SCRIPT = 64 * 1024
MAX_COMMANDS = 2000
MAX_SOURCED = 4
MAX_AGAIN = 100  # texts that are read once more: of functions, eval, traps
MAX_RUNNING = 100  # statements in statements, those of functions in calls
MAX_DEEP = 8  # calls of functions in functions
MAX_LOOPS = 3  # loops in loops of which each turn is told from the next
JOINS = ("MASTER_", "WORLD_SIZE", "RANK")  # variables by which processes find each other
_TOLD = ("CUDA_", "NCCL_", "TORCH_", *JOINS)  # variables that any program heeds
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=(.*)", re.ASCII | re.S)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_READS = re.compile(r"(?:^|/)(?:python[\d.]*|(?:ba|z)?sh)$", re.ASCII)
_SHELL = re.compile(r"(?:^|/)(?:ba|z)?sh$|\.(?:sh|bash|slurm|sbatch)$")
_MANY = re.compile(rf"[*?\[{{{UNKNOWN}]")  # of patterns, {1..5} and what nobody knows
_COUNTED = re.compile(r'[\s("]*\$#["\s]*(?:(?:>|!=|-gt)\s*0)?[\s)]*')  # (( $# )): of the arguments
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_EQUAL = {"=": True, "==": True, "-eq": True, "!=": False, "-ne": False}
_LESS = {"-lt": (0, False), "-ge": (0, True), "-gt": (1, False), "-le": (1, True)}
_ARGUMENT = re.compile(r'(?:\[|\[\[|test) -[zn] "?\$\{?[1-9]\}?"?(?: \]\]?)?$')
_TESTS = ("[", "[[", "test", "grep", "which", "command", "hash", "type", "let", "ls")
_SETTERS = ("export", "declare", "typeset", "local", "readonly")
_CHANGING = re.compile("[iul]")  # options of declare: sums, capitals
_STATUS = {"true": True, ":": True, "false": False}
_DIRECTORY = "cd"  # among the values of a scope: where the script is


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words without assignments, redirections and keywords.

    ``repeated`` where it stands in a loop or a function: it may run more or less than once.
    ``exported`` are the variables that a shell script it starts would see, of another its devices'.
    ``ways`` are the branches it stands in of which nobody knows which one is taken: for each the
    number of the ``if`` or ``case``, and which of its branches.
    """

    words: tuple[str, ...]
    repeated: bool
    exported: Mapping[str, str] = field(default_factory=dict)
    directory: str | None = ""
    ways: tuple[tuple[int, int], ...] = ()


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
    scope = Scope({**(variables or {}), _DIRECTORY: ""}, set(variables or ()))
    reader = _Reader(scope, sourced)
    reader.give(arguments)
    reader.read(_clean(text))
    for function in list(reader.uncalled):  # what nothing here calls may be called
        if function in scope.called:
            continue
        reader.give((UNKNOWN,))
        reader.repeated += 1
        reader.run(function.body)
    return Script(tuple(reader.commands), tuple(reader.documents), tuple(scope.substituted))


def _clean(text: str) -> str:
    known = text[:MAX_SCRIPT].encode(errors="replace").decode()
    return re.sub(f"[\\x00{UNKNOWN}]", "?", known).replace("\r\n", "\n") + "\n"


@dataclass(slots=True)
class _Reader:
    """Follows the statements of a tree as the shell would run them.

    ``run`` tells whether a statement succeeds; None where that is not known.
    """

    scope: Scope
    sourced: Sourced | None
    commands: list[Command] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    uncalled: dict[Function, None] = field(default_factory=dict)
    repeated: int = 0  # loops and functions around
    calls: list[dict[str, Value | None]] = field(default_factory=list)  # what each hides
    tested: bool = False  # the last command was a test
    ways: tuple[tuple[int, int], ...] = ()
    decisions: int = 0
    nested: int = 0
    again: int = 0
    sourced_files: int = 0
    exports_all: bool = False  # set -a

    def read(self, text: str) -> bool | None:
        """Run a text as if it stood here."""
        return self.run(parse(text))

    def run(self, statement: Statement, document: str = UNKNOWN) -> bool | None:
        """Run a statement that reads a document, known or not."""
        if len(self.commands) >= MAX_COMMANDS:
            return None
        if self.nested >= MAX_RUNNING:
            self._add((UNKNOWN,))
            return None
        self.nested += 1
        status = self._run(statement, document)
        self.nested -= 1
        return None if self.repeated else status  # it may be another in the next turn

    def _run(self, statement: Statement, document: str) -> bool | None:
        match statement:
            case Simple(words):
                return self._simple(words, document)
            case Redirected():
                return self._redirected(statement)
            case Statements(statements, apart):
                status = None
                with self.scope.aside() if apart else nullcontext():
                    for inner in statements:
                        status = self.run(inner)
                        if _leaves(inner, within=bool(self.calls)):
                            break
                return status
            case tree.Piped(statements, negated):
                status = None
                for inner in statements:
                    with self.scope.aside() if len(statements) > 1 else nullcontext():
                        status = self.run(inner)
                return (not status) if negated and status is not None else status
            case tree.Joined():
                return self._joined(statement)
            case tree.If(arms):
                self._ways(
                    (True if tests is None else self.run(tests), then) for tests, then in arms
                )
            case tree.Cases(word, items):
                word = self.scope.text(word)
                self._ways((self._matches(word, patterns), block) for patterns, block in items)
            case tree.Loop():
                self._loop(statement)
            case tree.Arithmetic(text):
                self.tested = True
                for name in CHANGED.findall(text):
                    self.scope.set(name, UNKNOWN)
            case Function():
                self._define(statement)
        return None

    def give(self, arguments: Sequence[str]) -> None:
        """Set ``$1`` and on."""
        before = self.scope.values.get("@", ())
        for i in range(max(len(arguments), len(before) if isinstance(before, tuple) else 0)):
            self.scope.set(str(i + 1), arguments[i] if i < len(arguments) else None)
        self.scope.set("@", tuple(arguments))
        unknown = any(UNKNOWN in word for word in arguments)
        self.scope.set("#", UNKNOWN if unknown else str(len(arguments)))

    def _redirected(self, redirected: Redirected) -> bool | None:
        read = UNKNOWN
        for file in redirected.files:
            self.scope.text(file)  # of which commands may be a part
        for document in redirected.documents:
            if document.word:
                read = self.scope.text(document.text)
            else:
                read = document.text if document.quoted else self.scope.inside(document.text)
                self.documents.append(read)
        return self.run(redirected.statement, read)

    def _joined(self, both: tree.Joined) -> bool | None:
        """What follows ``||``, or ``&&`` behind a test, may not run."""
        status, wanted = self.run(both.first), both.operator == "&&"
        if status is not None and status != wanted:
            return status
        if status is None and (self.tested or not wanted):
            self._ways([(None, both.second)])
            return None
        return self.run(both.second)

    def _ways(self, ways: Iterable[tuple[bool | None, Statement]]) -> None:
        """Go the first way that is open; those that may be are read too, and so is none."""
        gone: list[Mapping[str, Value | None]] = []
        self.decisions += 1
        decision, around = self.decisions, self.ways
        for branch, (is_open, statement) in enumerate(ways):
            if is_open is False:
                continue
            if is_open and not gone:
                self.run(statement)
                return
            self.ways = (*around, (decision, branch))
            with self.scope.aside() as way:
                self.run(statement)
            self.ways = around
            gone.append(way)
            if is_open:
                break
        else:
            gone.append({})
        self.scope.merge(gone)

    def _matches(self, word: str, patterns: Iterable[str]) -> bool | None:
        found: bool | None = False
        for written in patterns:
            pattern = self.scope.text(written).replace("[^", "[!")
            quoted = _MANY.search(pattern) and re.search(r"[\"'\\]", written)
            known = not (self.repeated or quoted or UNKNOWN in pattern + word) or written == "*"
            if known and fnmatchcase(word, pattern):
                return True
            found = found if known else None
        return found

    def _loop(self, loop: tree.Loop) -> None:
        """Read the first turn; behind it nobody knows how many there were.

        A loop over one word is none, and one whose test fails at first never turns.
        """
        name, words = loop.words[0] if loop.words else "", self.scope.words(loop.words[2:])
        if loop.words[1:2] == ("in",) and len(words) == 1 and not _MANY.search(words[0]):
            self.scope.set(name, words[0])
            self.run(loop.body)
            return
        if loop.kind == "while" and not self.repeated and self._fails(loop.tests):
            return
        changed: list[str] = CHANGED.findall(name) if name.startswith("((") else [name]
        if self.repeated < MAX_LOOPS:  # what the turn before has left
            changed += [each for each in _assigned_in(loop.body) if each in self.scope.values]
        self.repeated += 1
        with self.scope.aside() as turn:
            for each in changed:
                self.scope.set(each, UNKNOWN)
            self.run(loop.tests)
            self.run(loop.body)
        self.repeated -= 1
        for each, value in turn.items():
            if value != self.scope.values.get(each):
                self.scope.set(each, (UNKNOWN,) if isinstance(value, tuple) else UNKNOWN)

    def _fails(self, tests: Statements) -> bool:
        match tests.statements:
            case (Simple(("getopts", *_)),):
                return self.scope.values.get("#") == "0"
            case (tree.Arithmetic(text),):
                return self.scope.values.get("#") == "0" and bool(_COUNTED.fullmatch(text))
            case (Simple(words),):
                with self.scope.aside():
                    if self.scope.values.get("#") == "0":
                        self.scope.set("1", "")
                    return _verdict(self._expanded(words)) is False
        return False

    def _define(self, function: Function) -> None:
        key = f"{function.name}()"
        before = self.scope.values.get(key)
        if isinstance(before, Function) and self.scope.certain:
            self.uncalled.pop(before, None)
        self.scope.set(key, function)
        self.uncalled[function] = None

    def _expanded(self, words: Iterable[Words]) -> list[str]:
        return self.scope.words(word for word in words if isinstance(word, str))

    def _simple(self, written: Sequence[Words], document: str) -> bool | None:
        given = list(takewhile(_is_assignment, written))
        words = self._expanded(written[len(given) :])
        if not words:
            for word in given:
                self._assign(word)
            return True
        self.tested = words[0] in _TESTS
        if _ARGUMENT.match(" ".join(map(str, written))) and self.scope.values.get("#") == "0":
            words[2:3] = [""]  # it is not given
        if words[0] in _SETTERS:
            return self._declare(words[0], written[1:])
        if words[0] in ("eval", "trap"):
            return self._evaluate(words)
        function = self.scope.values.get(f"{words[0]}()")
        if isinstance(function, Function) and self._again(function.text):
            return self._call(function, words[1:], given)
        if _READS.search(words[0]) and words[1:] in ([], ["-"]) and document != UNKNOWN:
            words = [words[0], "-c", document]
        self._forget(words, document)
        with self.scope.aside() as seen:
            for word in given:
                self._assign(word)
        self._add(words, {n: v for n, v in seen.items() if isinstance(v, str)})
        if words[0] in ("cd", "pushd", "popd"):
            self.scope.set(_DIRECTORY, UNKNOWN if self.repeated else self._moved(words))
        elif words[0] in ("source", ".") and len(words) > 1:
            self._source(words[1])
        return _STATUS.get(words[0], _verdict(words))

    def _assign(self, word: Words) -> None:
        """Do ``NAME=value``, ``NAME+=value`` or that of an array."""
        match = _ASSIGNMENT.match(word if isinstance(word, str) else word[0])
        assert match is not None
        name, index, adds, text = match.groups()
        before = self.scope.values.get(name)
        value: Value = (UNKNOWN,)
        if isinstance(word, tuple):
            placed = any(isinstance(each, str) and each.startswith("[") for each in word[1:])
            words = (UNKNOWN,) if placed else tuple(self.scope.words(word[1:]))
            if adds and isinstance(before, str | tuple):
                words = (*([before] if isinstance(before, str) else before), *words)
            value = self.scope.spent(words)
        elif not (index or isinstance(before, tuple)):
            value = self.scope.text(text)
            value = before + value if adds and isinstance(before, str) else value
        self.scope.set(name, value)

    def _declare(self, setter: str, written: Iterable[Words]) -> bool:
        """``export``, ``local`` and their like."""
        options: set[str] = set()
        for word in written:
            for each in [word] if _is_assignment(word) else self._expanded([word]):
                if (name := _assigned(each)).startswith("-"):
                    options.add(name)
                    continue
                if setter != "export" and self.calls and "-g" not in options:
                    self.calls[-1].setdefault(name, self.scope.values.get(name))
                if _is_assignment(each):
                    self._assign(each)
                if "-n" in options:  # another name of what it is set to
                    self.scope.set(str(self.scope.values.get(name)), UNKNOWN)
                if setter != "export" and _CHANGING.search("".join(options)):
                    self.scope.set(name, UNKNOWN)
                if setter == "export" or "-x" in options:
                    self.scope.exported.add(name)
        return True

    def _add(self, words: Sequence[str], given: Mapping[str, str] | None = None) -> None:
        """Keep a command, and what a shell that it starts knows; any other program, of devices."""
        values = self.scope.values
        names = [n for n in values if self.exports_all or n in self.scope.exported]
        seen = {n: v for n in names if isinstance(v := values[n], str)}
        seen.update(given or {})
        if not any(_SHELL.search(word) for word in words):
            seen = {name: value for name, value in seen.items() if name.startswith(_TOLD)}
        place, repeated = self._directory, self.repeated > 0
        if words[0] in ("xargs", "parallel"):  # words that it reads may follow
            words, repeated = [w.replace("{}", UNKNOWN) for w in (*words, UNKNOWN)], True
        self.commands.append(Command(tuple(words), repeated, seen, place, self.ways))

    @property
    def _directory(self) -> str | None:
        place = self.scope.values.get(_DIRECTORY)
        return place if isinstance(place, str) and place != UNKNOWN else None

    def _moved(self, words: Sequence[str]) -> str:
        """Where ``cd`` leads; not known where a variable says it."""
        to = words[1] if len(words) == 2 and words[0] == "cd" else UNKNOWN
        to = re.sub("^~(?=/|$)", str(self.scope.values.get("HOME", "~")), to)
        lost = self._directory is None and not to.startswith("/")
        known = not (lost or UNKNOWN in to or to.startswith(("-", "~")))
        return join(self._directory or "", to) if known else UNKNOWN

    def _source(self, path: str) -> None:
        """Read a file that the script sources as if it stood here."""
        given = self.scope.values.get("@", ())
        if basename(path) == "parse_options.sh" and isinstance(given, tuple):  # Kaldi's
            for flag, value in pairwise(given):
                name = flag.removeprefix("--").replace("-", "_")
                if flag.startswith("--") and name in self.scope.values:
                    self.scope.set(name, value)
        self.sourced_files += 1
        if self.sourced is not None:
            text = self.sourced(path, self._directory)
            if text is not None and self.sourced_files <= MAX_SOURCED and UNKNOWN not in path:
                self.read(_clean(text))

    def _evaluate(self, words: Sequence[str]) -> bool | None:
        """Run the text of ``eval``, and that of ``trap`` as if it ran here."""
        trap = words[0] == "trap"
        if trap and (len(words) < 3 or words[1].startswith("-")):
            return None
        text = words[1] if trap else " ".join(words[1:])
        if not self._again(text):
            self._add(words)
            return None
        with self.scope.aside() if trap else nullcontext():
            status = self.read(f"{text}\n")
        return None if trap else status

    def _again(self, text: str) -> bool:
        """Whether a text may be read once more."""
        self.again += 1
        few = self.again <= MAX_AGAIN and len(self.calls) < MAX_DEEP
        return few and self.scope.spent((text,)) == (text,)

    def _call(self, function: Function, arguments: list[str], given: list[Words]) -> bool | None:
        """Run a function; its arguments and what is local to it are gone behind it."""
        values, before = self.scope.values, self.scope.values.get("@", ())
        count = max(len(arguments), len(before) if isinstance(before, tuple) else 0)
        names = ["@", "#", *map(str, range(1, count + 1)), *map(_assigned, given)]
        self.calls.append({name: values.get(name) for name in names})
        for word in given:
            self._assign(word)
        self.give(self.scope.spent(tuple(arguments)))
        self.scope.called.add(function)
        status = self.run(function.body)
        for name, value in self.calls.pop().items():
            self.scope.set(name, value)
        return status

    def _forget(self, words: Sequence[str], document: str) -> None:
        """What commands that set variables by themselves leave unknown."""
        first, given = words[0], words[1:]
        if first in ("read", "unset", "mapfile", "readarray"):
            for word in given:
                self.scope.set(word.partition("[")[0], UNKNOWN)
            if first == "read" and given[-3:-1] == ["-d", ""]:  # a whole document into one
                self.scope.set(given[-1], document)
        if first == "let" or given[:1] == ["-v"]:  # printf -v NAME
            for name in filter(None, map(_NAME.match, given)):
                self.scope.set(name[0], UNKNOWN)
        if first == "set" and {"-a", "+a", "allexport"} & {*given}:
            self.exports_all = not {"+a", "+o"} & {*given}
            self.scope.exported.update(() if self.exports_all else self.scope.values)
        options = not given or given[0].startswith(("-", "+"))  # of the shell, not `$1` and on
        if first == "shift":
            count, held = "".join(given) or "1", self.scope.values.get("@")
            held = held if isinstance(held, tuple) and not self.repeated else ()
            gone = held[: int(count)] if count in map(str, range(len(held) + 1)) else (UNKNOWN,)
            self.give((UNKNOWN,) if UNKNOWN in gone else held[len(gone) :])
        elif first == "set" and ("--" in given or not options):
            self.give((UNKNOWN,))


def _assigned_in(part: object) -> Iterator[str]:
    """The names that a part of a script sets."""
    if isinstance(part, tuple):
        for each in part:
            yield from _assigned_in(each)
    elif isinstance(part, Simple):
        words = part.words[1:] if part.words[:1] and part.words[0] in _SETTERS else part.words
        yield from map(_assigned, words if all(map(_is_assignment, words)) else ())
    elif isinstance(part, tree.Arithmetic):
        yield from CHANGED.findall(part.text)
    else:
        for name in getattr(part, "__slots__", ()):
            yield from _assigned_in(getattr(part, name))


def _leaves(statement: Statement, within: bool) -> bool:
    """Whether nothing behind a statement in the same block runs; ``within`` a function or not."""
    match statement:
        case Simple(("exec", str(program), *_)):
            return not program.startswith("{")  # exec {lock}>FILE opens a file
        case Simple(("return", *_)):
            return within
        case Simple((first, *_)):
            return first in ("exit", "break", "continue")
        case Redirected(inner):
            return _leaves(inner, within)
    return False


def _assigned(word: Words) -> str:
    """The name that an assignment sets; any other word is its own."""
    text = word if isinstance(word, str) else word[0]
    match = _ASSIGNMENT.match(text)
    return text if match is None else match[1]


def _is_assignment(word: Words) -> bool:
    return isinstance(word, tuple) or _ASSIGNMENT.match(word) is not None


def _verdict(words: Sequence[str]) -> bool | None:
    """Whether a test of known words is true; None of any other command."""
    if words[0] not in ("[", "[[", "test"):
        return None
    return _holds(words[1:] if words[0] == "test" else words[1:-1], words[0] == "[[")


def _holds(test: Sequence[str], patterns: bool) -> bool | None:
    for operators, decides in ((("||", "-o"), True), (("&&", "-a"), False)):
        if at := next((i for i, word in enumerate(test) if word in operators), 0):
            sides = _holds(test[:at], patterns), _holds(test[at + 1 :], patterns)
            return decides if decides in sides else None if None in sides else not decides
    if test and test[0] == "!":
        inner = _holds(test[1:], patterns)
        return None if inner is None else not inner
    if any(UNKNOWN in word for word in test):
        return None
    if len(test) == 2 and test[0] in ("-z", "-n"):
        return (test[1] == "") == (test[0] == "-z")
    if len(test) != 3 or (patterns and re.search(r"[*?\[(]", test[2])):
        return None
    numbers = _WHOLE.fullmatch(test[0]) and _WHOLE.fullmatch(test[2])
    if test[1] in _LESS and numbers:
        turned, negated = _LESS[test[1]]
        pair = (int(test[0]), int(test[2]))
        return (pair[turned] < pair[1 - turned]) != negated
    known = test[1] in _EQUAL and (numbers or not test[1].startswith("-"))
    return (test[0] == test[2]) == _EQUAL[test[1]] if known else None
