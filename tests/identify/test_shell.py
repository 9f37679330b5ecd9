"""Shell scripts are read as bash would take them, and nothing in them is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import predictor
from predictor.identify.identify import parse_script
from predictor.identify.launch import launch_of
from predictor.identify.shell import Command, read_script
from predictor.identify.shell_syntax import UNKNOWN


def words(text: str, *arguments: str, **variables: str) -> list[tuple[str, ...]]:
    script = read_script(text, variables, arguments)
    return [command.words for command in script.commands]


def test_continued_lines_and_comments_are_one_command() -> None:
    assert words("a --b \\\n  c # d \\\n--e f#g") == [("a", "--b", "c"), ("--e", "f#g")]


def test_quotes_hold_words_together() -> None:
    assert words("""a "b c" 'd "e"' f\\ g h"i"'j' "" """) == [
        ("a", "b c", 'd "e"', "f g", "hij", "")
    ]


def test_commands_end_where_bash_ends_them() -> None:
    assert words("a b; c && d || e | f & (g)\nh") == [
        ("a", "b"),
        ("c",),
        ("d",),
        ("e",),
        ("f",),
        ("g",),
        ("h",),
    ]


def test_redirections_are_no_words() -> None:
    assert words("a b > log 2>&1 < in &>> x c") == [("a", "b", "c")]


def test_variables_set_in_the_script_are_filled_in() -> None:
    text = 'A=x\nexport B="y z" C=$A\nrun $A ${B} "$B" \'$A\' $A$C "-${C}-" \\$A'
    assert words(text)[-1] == ("run", "x", "y", "z", "y z", "$A", "xx", "-x-", "$A")


def test_variables_from_outside_and_arguments_are_filled_in() -> None:
    assert words('run $M $1 "$2" "$@"', "one", "two three", M="m") == [
        ("run", "m", "one", "two three", "one", "two three")
    ]


def test_a_default_stands_where_nothing_is_set() -> None:
    assert words("run ${A:-5} ${B-6} ${C:=7}", A="1") == [("run", "1", "6", "7")]


def test_arrays_are_their_words_over_many_lines() -> None:
    text = 'A=(\n  --x 1  # one\n  "b c"\n)\nA+=(--y)\nrun "${A[@]}" ${A[*]}'
    assert words(text)[-1] == ("run", "--x", "1", "b c", "--y", "--x", "1", "b", "c", "--y")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("run $(($T/$N/2))", "16"),
        ("run $(( (T + 2 * N) % 5 ))", "1"),
        ("run $(expr $T \\* $N)", "512"),
        ('run "$(expr $T / $N)"', "32"),
        ('run "$((T / (N * 2)))"', "16"),
        ("run $((N - T))", "-124"),
    ],
)
def test_sums_of_known_numbers_are_worked_out(text: str, value: str) -> None:
    assert words(f"T=128\nN=4\n{text}")[-1] == ("run", value)


@pytest.mark.parametrize(
    "text",
    [
        "run $A",
        "A=$(cat x)\nrun $A",
        "run `date`",
        "run $((N * 2))",
        "run $((1 / 0))",
        "run $((2 ** 9))",
        "run $((010 + 1))",
        "N=8\nrun $((N / M / 2))",
        "run $(expr 8 : 2)",
        "run ${SLURM_GPUS_ON_NODE:-1}",
        "run $(a $(b) c)",
        "if x; then A=1; fi\nrun $A",
        "for A in 1 2; do run $A; done",
        "read A\nrun $A",
        "A=1\nunset A\nrun $A",
        "f() { A=1; }\nrun $A",
        "A=1\ncase $2 in\n x) A=2 ;;\nesac\nrun $A",
        "while x; do A=1; done\nrun $A",
        "f() {\n run $1\n}",
        "shift\nrun $1",
        "set -- q r\nrun $1",
        'A=("$B")\nrun ${A[@]}',
    ],
)
def test_what_only_running_could_tell_is_unknown(text: str) -> None:
    found = [w for w in words(text, "argument") if w[0] == "run"]
    assert found == [("run", UNKNOWN)]


BRANCHES = """
case "$SIZE" in
  1b|3b) BATCH=32 ;;
  7*) BATCH=8
    NAME=large ;;
  *) BATCH=1 ;;
esac
if [ $GPUS -gt 4 ]; then STEPS=(--steps 2)
elif test $GPUS = 1; then STEPS=(--steps 16); else STEPS=(--steps 4); fi
if [[ "$KIND" != full ]]; then run lora; fi
run $BATCH "${STEPS[@]}"
"""


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"SIZE": "7b", "GPUS": "8", "KIND": "full"}, [("run", "8", "--steps", "2")]),
        ({"SIZE": "3b", "GPUS": "1", "KIND": "full"}, [("run", "32", "--steps", "16")]),
        ({"SIZE": "x", "GPUS": "4", "KIND": "q"}, [("run", "lora"), ("run", "1", "--steps", "4")]),
    ],
)
def test_branches_of_known_words_are_taken_and_the_others_left(
    known: dict[str, str], expected: list[tuple[str, ...]]
) -> None:
    assert [w for w in words(BRANCHES, **known) if w[0] == "run"] == expected


def test_a_case_may_stand_on_one_line() -> None:
    text = "case $M in a|b) A=1;; *) A=2;; esac; run $A"
    assert [words(text, M=word)[-1] for word in "bc"] == [("run", "1"), ("run", "2")]


def test_a_branch_that_is_not_known_leaves_those_after_it_open() -> None:
    text = "A=1\nif x; then A=2; elif [ a = a ]; then A=3; else A=4; fi\nrun $A"
    assert words(text)[-1] == ("run", UNKNOWN)
    loop = 'while [ $# -gt 0 ]; do case "$1" in --a) A="$2";; --b) B="$2";; esac; shift 2; done'
    text = f"A=1\n{loop}\nrun $A"
    assert words(text, "--b", "3", "--a", "2")[-1] == ("run", UNKNOWN)


@pytest.mark.parametrize(
    "loop",
    [
        'while [[ "$#" -gt 0 ]]; do case $1 in --a) A=$2; shift 2;; *) shift;; esac; done',
        "while [ $# -gt 0 ]\ndo\n for x in 1 2; do A=$x; done\n if $x; then A=4; fi\ndone",
        'while getopts "a:h" o; do\n case "$o" in\n a) A=$OPTARG;;\n esac\ndone',
        "if [ $# -gt 0 ]; then A=$1; fi",
        'while [[ "$1" != "" ]]; do case $1 in -a) shift; A=$1;; esac; shift; done',
        'while [ -n "$1" ]; do A=$2; shift; done',
        'while (( "$#" )); do A=$2; shift; done',
        "while (($# > 0)); do A=$2; shift; done",
    ],
)
def test_a_loop_over_arguments_leaves_what_it_would_set_where_there_are_none(loop: str) -> None:
    text = f"A=1\n{loop}\nrun $A"
    assert read_script(text).commands[-1] == Command(("run", "1"), False)
    assert words(text, "--a", "3")[-1] != ("run", "1")
    assert words(text, UNKNOWN)[-1] == ("run", UNKNOWN)  # may be none, or several


@pytest.mark.parametrize("written", ["${@:2}", '"${@:2}"', "${*: 2}"])
def test_arguments_from_one_on_are_those_behind_it(written: str) -> None:
    assert words(f"go() {{ python train.py {written}; }}\ngo a b --c")[-1][2:] == ("b", "--c")
    assert words(f"shift\npython train.py {written}")[-1][2:] == (UNKNOWN,)


def test_a_function_has_arguments_of_its_own() -> None:
    text = "A=1\nf() {\n  while [ $# -gt 0 ]; do\n    A=2\n    run x\n  done\n}\nf a\nrun $A"
    assert [c.words for c in read_script(text).commands if c.words[0] == "run"] == [
        ("run", "x"),
        ("run", UNKNOWN),
    ]


def test_the_options_of_kaldi_set_what_the_script_has_set_before() -> None:
    text = "stage=0\nstop_stage=1\n. utils/parse_options.sh || exit 1\nrun $stage $stop_stage"
    assert words(text, "--stop-stage", "7", "--other", "3")[-1] == ("run", "0", "7")


def test_options_of_the_shell_leave_the_arguments_alone() -> None:
    assert words("set -euo pipefail\nrun $1", "x")[-1] == ("run", "x")


@pytest.mark.parametrize(
    "text",
    [
        "for i in 1 2; do run; done",
        "while true\ndo\n run\ndone",
        "f() {\n run\n}",
        "f () { run; }",
        "for ((i = 0; i < 3; i++)); do run; done",
        "until x; do if y; then run; fi; done",
    ],
)
def test_a_command_in_a_loop_or_function_is_marked(text: str) -> None:
    commands = read_script(f"before\n{text}\nafter").commands
    marks = {c.words[0]: c.repeated for c in commands}
    assert (marks["before"], marks["run"], marks["after"]) == (False, True, False)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("f() {\n run $1 $#\n}\nf 1 2\nf 3", [("run", "1", "2"), ("run", "3", "1")]),
        ("function f { run $1; }\nf 1", [("run", "1")]),
        ("function f\n{\n run $1\n}\nf 1 | tee x", [("run", "1")]),
        ('f() { "$@"; }\nf run 1', [("run", "1")]),
        ("f() { g $1; }\ng() { run $1; }\nf 1", [("run", "1")]),
        ('f() {\nA=2\nrun $A\n}\nf "$@" 2>&1 | tee x', [("run", "2")]),
        ("A=1\nf() { local A=2; run $A; }\nf\nrun $A", [("run", "2"), ("run", "1")]),
        ("A=1\nf() { A=2; }\nrun $A\nf\nrun $A", [("run", "1"), ("run", "2")]),
        ("f() { shift; run $1; }\nf 1 2\nrun $1", [("run", "2"), ("run", "a")]),
        ('f() { shift 2; "$@"; }\nf 1 2 run 3', [("run", "3")]),
        ('f() { shift; "$@"; }\nf a run $B', [("run", UNKNOWN)]),
        ('f() { shift; "$@"; }\nf $B run 1', [(UNKNOWN,)]),
        ("f() { shift 3; run $1; }\nf 1 2", [("run", UNKNOWN)]),
        ("f() { if x; then shift; fi; run $1; }\nf 1 2", [("run", UNKNOWN)]),
        ("f() { for i in 3 4; do shift; done; run $1; }\nf 1 2 3", [("run", UNKNOWN)]),
        ("f() { run 1; }\nf() { run 2; }\nf", [("run", "2")]),
        ("f() { run $1; }\nA=1\ntrap 'A=2; f $A' EXIT\nrun $A", [("run", "2"), ("run", "1")]),
        ("if false_; then f() { run 1; }; fi\nf", [("f",), ("run", "1")]),
        ("f() {\n run 1", [("run", "1")]),
        ("f() (\n run 1\n)\nf", [("run", "1")]),
        ("f() { if x; then { run 1; }; fi; }\nf", [("run", "1")]),
        ("B=1 f\nf() { run $B; }\nB=2 f\nrun $B", [("f",), ("run", "2"), ("run", UNKNOWN)]),
    ],
)
def test_a_function_is_read_where_it_is_called(text: str, runs: list[tuple[str, ...]]) -> None:
    assert [c for c in words(text, "a") if c[0] in ("run", "f", UNKNOWN)] == runs


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("eval A=2", "2"),
        ("eval 'A=2; A=3'", "3"),
        ("(A=2)", "1"),
        ("(A=2; (A=3); run2 $A) | tee x", "1"),
        ("f() { declare -g A=2; }\nf", "2"),
        ("f() { A=2; }\necho | f", "1"),
        ("f() { A=2; }\nf | tee x", "1"),
        ("f() { A=2; }\nf &\nwait", "1"),
        ("f() { :; }\ng() { A=2; }\nf | g", "1"),
        ("f() { :; }\nf | tee x\nA=2", "2"),
        ("f() { A=2; }\n[ -f x ] && f", UNKNOWN),
        ("f() { A=2; }\ng() { f; }\n[ -f x ] && g", UNKNOWN),
        ("f() { A=2; run2 $A; }\nf | tee x", "1"),
        ("A=2 &", "1"),
        ("A=2 | tee x", "1"),
        ("false && A=2", "1"),
        ("true && A=2", "2"),
        ("x || A=2", UNKNOWN),
        ("if x; then A=1; fi", "1"),
        ("if [ 3 -le -1 ]; then A=2; fi", "1"),
        ("if [ 3 -ge -1 ] && [ ! -z x ]; then A=2; fi", "2"),
        ('if [[ -z "" || $x == 1 ]]; then A=2; fi', "2"),
        ('if [[ -n "" && $x == 1 ]]; then A=2; fi', "1"),
        ('if [ -n x -a "$x" = 1 ]; then A=2; fi', UNKNOWN),
        ("if x; then A=2; else A=2; fi", "2"),
        ("while x; do A=$A; done", UNKNOWN),
        ("while x; do A=1; done", "1"),
        ("f() { return 1; A=2; }\nf", "1"),
        ("if x; then exit; A=2; fi", "1"),
        ("exit\nA=2", None),
        ("return\nA=2", "2"),
        ("exec > log\nA=2", "2"),
        ("exec {lock}> log\nA=2", "2"),
        ("exec python x.py\nA=2", None),
        ("declare -i A=1+1", UNKNOWN),
        ("echo $((A++))", UNKNOWN),
        ("A=01\nif [ $A -eq 1 ]; then A=2; fi", UNKNOWN),
        ("A=b\ncase ab in 'a*') A=2;; esac", UNKNOWN),
        ("A=b\ncase ab in [^a]b) A=2;; esac", "b"),
        ("f() (A=2)\nf", "1"),
        ("f() { local -n r=$1; r=2; }\nf A", UNKNOWN),
        ("printf -v A %d 2", UNKNOWN),
        ("let A=A+1", UNKNOWN),
        ("((A += 1))", UNKNOWN),
        ("((B == A))", "1"),
        ("((B == 3)) && A=2", UNKNOWN),
        ("let B==3 && A=2", UNKNOWN),
        ("for ((i = 0; i < 3; ++A)); do x; done", UNKNOWN),
        ('B="2 + 3"; A=$((B * 2))', "10"),
        ('B="2 + 3"; A=$(($B * 2))', "8"),
    ],
)
def test_what_a_command_sets_holds_behind_it(setting: str, value: str | None) -> None:
    runs = [found for found in words(f"A=1\n{setting}\nrun $A") if found[0] == "run"]
    assert runs == ([] if value is None else [("run", value)])


def test_a_branch_knows_what_it_sets_and_flags_that_may_follow_keep_their_names() -> None:
    text = (
        'A="--x 1"\nB=(y)\nif [ -f z ]; then A="$A --amp"; B+=(--n 2); run $A; fi\nrun $A ${B[@]}'
    )
    inside, behind = [found for found in words(text) if found[0] == "run"]
    assert inside == ("run", "--x", "1", "--amp")
    assert behind == ("run", "--x", "1", f"--amp={UNKNOWN}", "y", f"--n={UNKNOWN}", UNKNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "A=()\nrun",
        "A=1 B=2\nrun",
        "A=$B/$C.x\nrun",
        "x > $B/$C.x\nrun",
        "f ()\n{ x; }\nf\nrun",
        "a <(b)\nrun",
    ],
)
def test_a_statement_ends_where_bash_ends_it(text: str) -> None:
    assert words(text)[-1] == ("run",)
    assert not read_script(text).commands[-1].repeated


def test_a_directory_holds_within_brackets() -> None:
    found = read_script("(cd a && run 1)\nrun 2").commands
    assert [c.directory for c in found if c.words[0] == "run"] == ["a", ""]


def test_a_function_that_calls_itself_is_given_up() -> None:
    found = words("f() { run; f; f; }\nf")
    assert found[-1] == ("f",)
    assert len(found) < 500


@pytest.mark.parametrize(
    ("begin", "end"), [("if x; then", "fi"), ("{", "}"), ("case x in *)", "esac")]
)
def test_calls_in_what_nests_deeply_are_given_up(begin: str, end: str) -> None:
    bodies = [f"{begin} " * 50 + name + f"; {end}" * 50 for name in ("run", *"abcdefgh")]
    text = "\n".join(
        f"{name}() {{ {body}; }}" for name, body in zip("abcdefghi", bodies, strict=True)
    )
    assert (UNKNOWN,) in words(f"{text}\ni")


def test_what_a_substitution_runs_is_kept() -> None:
    script = read_script(
        'f() { echo 1; }\nA=$(f)\nrun `date` $((1 + 2))\neval "$(conda shell.bash hook)"'
    )
    assert [text.strip() for text in script.substituted] == ["{ echo 1; }", "date"]
    assert script.commands[-1].words == (":",)


def test_here_documents_are_no_commands() -> None:
    text = "A=1\ncat <<EOF > x\n{$A}\nrun\nEOF\ncat <<'E' \n$A\nE\nafter\n"
    script = read_script(text)
    assert script.documents == ("{1}\nrun", "$A")
    assert [c.words[0] for c in script.commands] == ["cat", "cat", "after"]


def test_values_that_grow_without_end_are_given_up() -> None:
    found = words("A=ab\n" + "A=$A$A\n" * 60 + "run $A")
    assert set(found[0][1]) == {UNKNOWN}


def test_nothing_is_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    parse_script(
        f'python train.py --model "$(touch {trap})" --epochs `touch {trap}` -b $(({trap}=1))\n'
        f"touch {trap}; bash -c 'touch {trap}'\n#PT model=$(touch {trap})\n",
        ("x", f"$(touch {trap})"),
    )
    assert not trap.exists()


def test_what_follows_a_command_inside_quotes_is_kept() -> None:
    text = 'L="launch --n $((2 * 4)) --h $(host $(id) | cut -f1) train.py --epochs 3"\nrun $L'
    known = ("launch", "--n", "8", "--h", UNKNOWN, "train.py", "--epochs", "3")
    assert words(text)[-1] == ("run", *known)
    assert words('run "a $(b (c e"') == [("run", f"a {UNKNOWN}")]


TURNS = """
for seed in 61; do
  BATCH=64
  for lr in 1 2; do
    ARGS=(--batch $BATCH)
    ARGS+=(--lr $lr)
    run ${ARGS[@]} ${LENGTH:-${SEQ:-512}}
    BATCH=$((BATCH * 2))
  done
done
run $seed $BATCH ${ARGS[@]}
"""


def test_what_the_next_turn_of_a_loop_may_find_changed_is_not_known() -> None:
    inside, behind = (c for c in read_script(TURNS).commands if c.words[0] == "run")
    assert (inside.words, inside.repeated) == (
        ("run", "--batch", UNKNOWN, "--lr", UNKNOWN, "512"),
        True,
    )
    assert (behind.words, behind.repeated) == (("run", "61", UNKNOWN, UNKNOWN), False)


@pytest.mark.parametrize("words", ["{1..5}", "*.yaml", "a b", "$LIST", "$(seq 3)"])
def test_a_loop_over_one_word_alone_is_none(words: str) -> None:
    assert [c.repeated for c in read_script("for x in a; do run; done").commands] == [False]
    assert [c.repeated for c in read_script(f"for x in {words}; do run; done").commands] == [True]


@pytest.mark.parametrize(
    "value",
    [
        '"$(python3 -c "import torch; print(torch.cuda.device_count())")"',
        '"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/.."',
        '"$(nvidia-smi | grep "(A100)" | wc -l)"',
    ],
)
def test_quotes_inside_a_substitution_end_no_word(value: str) -> None:
    first, last = read_script(f"N={value}\nrun $N\ntrain --epochs 3\n").commands
    assert len(first.words) == 2
    assert UNKNOWN in first.words[1]
    assert last.words == ("train", "--epochs", "3")
    assert not last.repeated


def test_a_document_read_into_one_variable_is_its_value() -> None:
    text = "read -r -d '' A <<EOF\nm.train \\\n --epochs 3\nEOF\npython -m $A\n"
    assert read_script(text).commands[-1].words == ("python", "-m", "m.train", "--epochs", "3")


@pytest.mark.parametrize(
    "text",
    [
        "read -r -d '' A B <<E\nx y\nE\nrun $B\n",
        "read -r A <<E\nx\ny\nE\nrun $A\n",
        "cat <<E\nx\nE\nread -r -d '' A < f\nrun $A\n",
        "if [ -f f ]; then read -r -d '' A <<E\nx\nE\nfi\nrun $A\n",
    ],
)
def test_what_is_read_in_parts_or_perhaps_is_not_known(text: str) -> None:
    assert read_script(text).commands[-1].words == ("run", UNKNOWN)


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ('A=("a b" c); run ${A[@]}', ("a", "b", "c")),
        ('A=("a b" c); run "${A[@]}"', ("a b", "c")),
        ('A=("a b" c); run "${A[*]}"', ("a b c",)),
        ('A=(b c); run "a ${A[@]} d"', ("a b", "c d")),
        ('A=(); run "${A[@]}" ""', ("",)),
        ("A=(b c); run $A", ("b",)),
        ("A=b; A+=(c); run ${A[@]}", ("b", "c")),
        ("A=([1]=b [0]=c); run ${A[@]}", (UNKNOWN,)),
        ("A=; run ${A-b} ${A:-c}", ("c",)),
        ("A=; run ${A:=b} $A", ("b", "b")),
        ('run "${A:-"b"}" $[1+1]', ("b", f"{UNKNOWN}1+1]")),
        ("run $((-7 / 2)) $((-7 % 3)) $((10#08))", ("-3", "-1", UNKNOWN)),
        ("run x{1..3} '{a,b}' {c}", (f"x{UNKNOWN}", "{a,b}", "{c}")),
        ("run $'a\\tb' $'c'", (UNKNOWN, "c")),
        ("IFS=,; A=b,c; run $A", (UNKNOWN,)),
        ("bash <<E\nA=2; run $A\nE", None),
    ],
)
def test_words_are_those_of_bash_or_unknown(text: str, run: tuple[str, ...] | None) -> None:
    expected = ("bash", "-c", "A=2; run ?") if run is None else ("run", *run)
    assert [words(text)[-1]] == [tuple(w.replace("?", UNKNOWN) for w in expected)]


def test_words_that_xargs_reads_may_follow() -> None:
    (command,) = (c for c in read_script("ls | xargs -I{} run --x {}").commands if "run" in c.words)
    assert command.words == ("xargs", f"-I{UNKNOWN}", "run", "--x", UNKNOWN, UNKNOWN)
    assert command.repeated


@pytest.mark.parametrize(("option", "seen"), [("-a", True), ("-o allexport", True), ("-e", False)])
def test_a_script_that_exports_all_tells_its_shells(option: str, seen: bool) -> None:
    (command,) = read_script(f"set {option}; : ${{A:=2}}; bash -c x").commands[2:]
    assert (command.exported.get("A") == "2") is seen


def test_what_is_set_behind_its_end_is_not_exported() -> None:
    command = read_script("set -a; A=2; set +a; B=3; bash -c x").commands[-1]
    assert (command.exported.get("A"), command.exported.get("B")) == ("2", None)


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 matches that wrongly, and reading never ended (cpython 106052)."""
    repeated = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
    package = Path(predictor.__file__).parent
    files = (*package.rglob("*.py"), *package.rglob("*.yaml"))
    assert [file.name for file in files if repeated.search(file.read_text("utf-8"))] == []


@pytest.mark.parametrize("found", ["$(which train)", "`command -v train`", '"$(type -p train)"'])
def test_where_a_program_is_is_that_program(found: str) -> None:
    (*_, command) = read_script(f"torchrun --nproc_per_node=2 {found} --epochs 3\n").commands
    assert command.words == ("torchrun", "--nproc_per_node=2", "train", "--epochs", "3")
    launch = launch_of(command.words)
    assert launch is not None
    assert launch.program == "train"


@pytest.mark.parametrize("test", ['[ -z "$1" ]', "[[ -z $1 ]]", 'test -z "${1}"'])
def test_an_argument_that_is_not_given_leaves_its_default(test: str) -> None:
    text = f"if {test}\nthen\nX=own\nelse\nX=$1\nfi\npython train.py $X\n"
    assert read_script(text).commands[-1].words[2:] == ("own",)
    assert read_script(text, arguments=("theirs",)).commands[-1].words[2:] == ("theirs",)
