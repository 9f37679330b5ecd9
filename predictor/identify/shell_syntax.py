"""The statements of a shell script. Every text has some, whatever it lacks or has too much."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Stands in a word for what cannot be known without running the script.
UNKNOWN = "\ue000"
MAX_NESTED = 60  # statements in statements

# The parts of a word, none of which makes the matching slow; where $(...) ends, closing tells.
QUOTED = r"""'(?P<single>[^']*+)'?
    |\$'(?P<ansi>(?>(?:[^'\\]|\\.)*))'?
    |\$?"(?P<double>(?>(?:[^"\\$]++|\\.|\$\((?>(?:[^()"]++|"(?>(?:[^"\\]|\\.)*)"
    |\((?>(?:[^()"]++|"(?>(?:[^"\\]|\\.)*)"|\([^()]*+\))*)\))*)\)|\$\{\w+:?[-=+]"[^"{}\\]*+"\}|\$)*))"?
    |\\(?P<escaped>.?)"""
BRACED = r"`[^`]*+`|\$\{(?>(?:\$\{[^{}\n]{1,200}+\}|[^}\n]){1,200})\}"
_PART = re.compile(
    rf"{QUOTED}|{BRACED}|(?P<open>[$<>]\()|[^\s;&|()<>'\"\\`$]++|[$`]",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BLANK = re.compile(r"(?>(?:[ \t\r\f\v]++|\\\n|(?<![^\s;&|()])#[^\n]*+)*)")
_REDIRECT = re.compile(r"\d*+(?:&>>?|[<>]&|>>|<<<|<<-?|>\||<>|[<>](?!\())")
_OPERATOR = re.compile(r";;&?|;&|&&|\|\||\|&|[;&|\n()]")
_LINE = re.compile(r"[^\n]*+\n|[^\n]++")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_BRACKET = re.compile(r"[()]")
_CLOSING = frozenset(("then", "elif", "else", "fi", "do", "done", "esac", "}"))
_NEXT_ITEM = (";;", ";&", ";;&")


@dataclass(slots=True)
class Document:
    """A here-document or the word behind ``<<<``; in a ``quoted`` one nothing is filled in."""

    text: str = ""
    quoted: bool = False
    word: bool = False


@dataclass(frozen=True, slots=True)
class Simple:
    """A command's words as they are written; an array is ``NAME=`` or ``NAME+=`` and its words."""

    words: tuple[str | tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Redirected:
    """A statement with the files and documents it reads or writes."""

    statement: Statement
    files: tuple[str, ...]
    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements one after the other; ``apart`` in a process of their own."""

    statements: tuple[Statement, ...]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Piped:
    """Statements of which each reads what the one before prints."""

    statements: tuple[Statement, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """``first && second`` or ``first || second``."""

    first: Statement
    operator: str
    second: Statement


@dataclass(frozen=True, slots=True)
class If:
    """Tests with what runs behind the first that succeeds; ``else`` has none."""

    arms: tuple[tuple[Statements | None, Statements], ...]


@dataclass(frozen=True, slots=True)
class Cases:
    """A word, and patterns with what runs behind the first that it matches."""

    word: str
    items: tuple[tuple[tuple[str, ...], Statements], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its first word, the words behind it, what is tested before each turn, its body."""

    kind: str
    words: tuple[str, ...]
    tests: Statements
    body: Statements


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``((...))``."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function that is defined, not called; ``text`` is its body."""

    name: str
    body: Statement
    text: str


Statement = (
    Simple | Redirected | Statements | Piped | Joined | If | Cases | Loop | Arithmetic | Function
)


def parse(text: str) -> Statements:
    """The statements of a text."""
    return _Parser(text, _tokens(text)).block()


def closing(text: str, position: int) -> int:
    """The position behind the bracket that closes the one before ``position``, or the end."""
    depth = 1
    for match in _BRACKET.finditer(text, position):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, redirect, operator, sum, end
    text: str
    start: int
    end: int
    document: Document | None = None


def _tokens(text: str) -> list[_Token]:
    tokens = [_Token("operator", "\n", 0, 0)]
    awaited: list[Document] = []
    at = 0
    while at < len(text):
        blank = _BLANK.match(text, at)
        at = start = blank.end() if blank else at
        document = None
        if text.startswith("((", at):
            kind, at = "sum", closing(text, at + 1)
        elif match := _REDIRECT.match(text, at):
            kind, at = "redirect", match.end()
            document = Document(word=match[0].endswith("<<<")) if "<<" in match[0] else None
        elif match := _OPERATOR.match(text, at):
            kind, at = "operator", match.end()
        else:
            kind, at = "word", _word_end(text, at)
            if (before := tokens[-1].document) is not None:
                before.text = text[start:at]
                if not before.word:
                    awaited.append(before)
        if at > start:
            tokens.append(_Token(kind, text[start:at], start, at, document))
        if text[start:at] == "\n":
            for waiting in awaited:
                at = _document(text, at, waiting)
            awaited.clear()
    return [*tokens, _Token("end", "", at, at)]


def _word_end(text: str, at: int) -> int:
    while part := _PART.match(text, at):
        at = closing(text, part.end()) if part["open"] else part.end()
    return at


def _document(text: str, at: int, document: Document) -> int:
    """Take a document up to its mark; the position behind it. Without the mark it is the rest."""
    mark = re.sub(r"[\\'\"]", "", document.text)
    document.quoted = mark != document.text
    lines: list[str] = []
    for line in _LINE.finditer(text, at):
        at = line.end()
        if line[0].strip() == mark:
            break
        lines.append(line[0])
    document.text = "".join(lines).removesuffix("\n")
    return at


@dataclass(slots=True)
class _Parser:
    """Takes statements off tokens; those that fit nowhere are passed over."""

    text: str
    tokens: list[_Token]
    at: int = 0
    nested: int = 0

    @property
    def here(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> _Token:
        """The token here, gone past if it is one of the texts, or if none are given."""
        token = self.here
        if token.kind != "end" and (not texts or token.text in texts):
            self.at += 1
        return token

    def is_operator(self, *texts: str) -> bool:
        return self.here.kind == "operator" and self.here.text in texts

    def pass_lines(self) -> None:
        while self.is_operator("\n", ";"):
            self.at += 1

    def block(self, *ends: str) -> Statements:
        """Statements up to one of the ends, which stays."""
        found: list[Statement] = []
        while self.here.kind != "end" and self.here.text not in ends:
            astray = self.here.kind == "operator" and self.here.text != "("
            if astray or self.here.text in _CLOSING:
                self.at += 1
                continue
            found.append(self.joined())
            if self.is_operator("&"):
                found[-1] = Statements((found[-1],), apart=True)
        return Statements(tuple(found))

    def joined(self) -> Statement:
        first = self.pipeline()
        while self.is_operator("&&", "||"):
            operator = self.take().text
            self.pass_lines()
            first = Joined(first, operator, self.pipeline())
        return first

    def pipeline(self) -> Statement:
        negated = False
        while self.here.text in ("!", "time", "-p"):
            negated ^= self.take().text == "!"
        found = [self.command()]
        while self.is_operator("|", "|&"):
            self.at += 1
            self.pass_lines()
            found.append(self.command())
        return Piped(tuple(found), negated) if negated or len(found) > 1 else found[0]

    def command(self) -> Statement:
        """A command of any kind, with its redirections."""
        if self.nested >= MAX_NESTED:
            self.at = len(self.tokens) - 1
            return Simple((UNKNOWN,))
        self.nested += 1
        first = self.here
        statement: Statement | None = None
        if first.kind == "sum":
            statement = Arithmetic(self.take().text)
        elif first.text in _COMPOUND:
            statement = _COMPOUND[first.text](self)
        elif [token.text for token in self.tokens[self.at + 1 : self.at + 3]] == ["(", ")"]:
            statement = None if _ARRAY.fullmatch(first.text) else self.function()
        words: list[str | tuple[str, ...]] = []
        files: list[str] = []
        documents: list[Document] = []
        while self.here.kind == "redirect" or (statement is None and self.here.kind == "word"):
            token = self.take()
            if token.kind == "word":
                words += self.test() if token.text == "[[" and not words else [self.array(token)]
                continue
            if token.document is not None:
                documents.append(token.document)
            if self.here.kind == "word":
                files.append(self.take().text)
        self.nested -= 1
        statement = statement or Simple(tuple(words))
        redirected = files or documents
        return Redirected(statement, tuple(files), tuple(documents)) if redirected else statement

    def array(self, token: _Token) -> str | tuple[str, ...]:
        """A word, or the array that it begins."""
        begins = self.here.text == "(" and self.here.start == token.end
        if not (begins and _ARRAY.fullmatch(token.text)):
            return token.text
        words = [token.text]
        while self.here.kind != "end" and self.take().text != ")":
            if self.here.kind == "word":
                words.append(self.here.text)
        return tuple(words)

    def test(self) -> list[str]:
        """``[[ ... ]]``, in which operators are words."""
        words = ["[["]
        while self.here.kind != "end" and words[-1] != "]]":
            words.append(self.take().text)
        return words

    def if_(self) -> If:
        arms: list[tuple[Statements | None, Statements]] = []
        while self.take("if", "elif", "else").text in ("if", "elif", "else"):
            last = self.tokens[self.at - 1].text == "else"
            tests = None if last else self.block("then", "elif", "else", "fi")
            self.take("then")
            arms.append((tests, self.block("elif", "else", "fi")))
        self.take("fi")
        return If(tuple(arms))

    def case(self) -> Cases:
        self.at += 1
        word = self.take().text
        self.pass_lines()
        self.take("in")
        items: list[tuple[tuple[str, ...], Statements]] = []
        self.pass_lines()
        while self.here.kind != "end" and self.take("esac").text != "esac":
            self.take("(")
            patterns: list[str] = []
            while self.here.kind == "word" or self.is_operator("|"):
                patterns += [self.here.text] if self.here.kind == "word" else []
                self.at += 1
            self.take()  # its bracket
            items.append((tuple(patterns), self.block(*_NEXT_ITEM, "esac")))
            self.take(*_NEXT_ITEM)
            self.pass_lines()
        return Cases(word, tuple(items))

    def loop(self) -> Loop:
        kind = self.take().text
        words: list[str] = []
        if kind in ("for", "select"):
            while self.here.kind in ("word", "sum") and self.here.text != "do":
                words.append(self.take().text)
            self.pass_lines()
        tests = self.block("do", "done")
        self.take("do")
        body = self.block("done")
        self.take("done")
        return Loop(kind, tuple(words), tests, body)

    def group(self) -> Statements:
        apart = self.take().text == "("
        end = ")" if apart else "}"
        block = self.block(end)
        self.take(end)
        return Statements(block.statements, apart)

    def function(self) -> Function:
        self.take("function")
        name = self.take().text
        self.take("(")
        self.take(")")
        self.pass_lines()
        start = self.here.start
        body = self.command()
        return Function(name, body, self.text[start : self.tokens[self.at - 1].end])


_COMPOUND: Mapping[str, Callable[[_Parser], Statement]] = {
    **dict.fromkeys(("for", "select", "while", "until"), _Parser.loop),
    **dict.fromkeys(("{", "("), _Parser.group),
    "if": _Parser.if_,
    "case": _Parser.case,
    "function": _Parser.function,
}
