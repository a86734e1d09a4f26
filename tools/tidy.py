#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not see. Run as a test, and by `make lint`.

    tools/tidy.py [--root DIR]

Prints one line a breach, `file:line: what is wrong and what to do`, and exits with 1 if there is
one. The rules:

  - an #include points down the floors of ARCHITECTURE.md, never up or sideways, and is written
    from src/; src/testing is for tests, fuzzers and benchmarks;
  - a function has at most 70 lines, a file at most 500 (a test file 800);
  - no path of somebody's machine, no mark of unfinished work, and raw atomic builtins only in
    base/shared_word.h;
  - every drop reason has a sentence, and stands in docs/stats.md;
  - every option and key of src/control/option_schema.cc stands in the manual page and in the
    completion, and every option that a file of apps/ reads by itself in the help of that file.
    (That the help, the manual page and the completion agree, tests/test_cli.py sees.)
  - every package of tools/install-deps.sh stands in README.md.

It is not a parser of C++: it strips comments and strings and follows the braces. Code laid out by
clang-format is understood.
"""

import argparse
import ast
import os
import re
import sys

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 800

# A folder and those that it may include from; its own files are always allowed.
ARROWS = {
    "base": [],
    "memory": ["base"],
    "virtio": ["memory"],
    "vhost": ["virtio"],
    "packet": ["memory"],
    "xdp": ["memory"],
    "port": ["vhost", "packet", "xdp"],
    "engine": ["port"],
    "control": ["engine"],
    "measure": ["control"],
    "testing": ["port"],
    "apps": ["measure"],
    "bench": ["control", "testing"],
    "fuzz": ["control", "testing"],
}
# Folders outside src/: what lies beside a file there is included by its bare name.
TOP_FOLDERS = ("apps", "bench", "fuzz")

CODE_ENDINGS = (".cc", ".h")
TEXT_ENDINGS = CODE_ENDINGS + (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".1", ".bash", ".toml")
SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".cache"}

# Written in pieces, so that this file does not contain what it forbids.
FORBIDDEN = [
    (re.compile(r"(?<![\w.$}])/" + r"(work|root|home)(?=/|\b(?![-.\w]))"),
     "a path of somebody's machine: use a path relative to the project, or an option"),
    (re.compile(r"\b(FIX" + r"ME|X" + r"XX)\b"),
     "a mark of unfinished work: finish it, or write down the limit in docs/limits.md"),
]
RAW_ATOMIC = "__atomic" + "_"
RAW_ATOMIC_HOME = os.path.join("src", "base", "shared_word.h")


def reachable(folder):
    """Every folder that `folder` may include from, itself included."""
    seen, todo = set(), [folder]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += ARROWS.get(name, [])
    return seen


def blank(text):
    """Spaces for everything but line ends: positions and line numbers stay."""
    return re.sub(r"[^\n]", " ", text)


STRIP = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'
    r"|//(?:[^\n\\]|\\.|\\\n)*"
    r"|/\*.*?\*/"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9a-zA-Z_])'(?:[^'\\\n]|\\.)+'"
    r"|(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])",
    re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)


def strip_code(text):
    """C++ with comments, strings and preprocessor lines blanked out."""
    return DIRECTIVE.sub(lambda m: blank(m.group()), STRIP.sub(lambda m: blank(m.group()), text))


TYPE_WORD = re.compile(r"\b(class|struct|union|enum|namespace|concept)\b")
NOISE = re.compile(r"\b(?:alignas|__attribute__|requires|decltype|noexcept|explicit)\s*"
                   r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]|\btemplate\s*<[^{};()]*>",
                   re.DOTALL)
LABELS = re.compile(r"\s*(?:(?:public|private|protected)\s*:\s*)*")
MEMBER_INITIALISER = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.DOTALL)


def classify(header):
    """What the brace after `header` opens: 'function', 'initialiser' or 'scope'."""
    text = NOISE.sub(" ", header).strip()
    if MEMBER_INITIALISER.search(text):
        return "initialiser"
    if text.endswith(("=", ",", "(", "return")) or "(" not in text:
        return "scope"
    if TYPE_WORD.search(text.split("(")[0]) and not re.search(r"\w\s*\([^()]*\)", text):
        return "scope"
    return "function"


def functions(code):
    """(first line, last line) of each function in stripped code; lines count from 1."""
    stack = []
    header_begin = 0
    for match in re.finditer(r"[{};]", code):
        mark, at = match.group(), match.start()
        inside = any(kind in ("function", "initialiser") for kind, _ in stack)
        if mark == "{":
            kind = "inner" if inside else classify(code[header_begin:at])
            stack.append((kind, header_begin))
            if kind == "scope":
                header_begin = at + 1
        elif mark == "}":
            kind, begin = stack.pop() if stack else ("scope", at)
            if kind == "function":
                begin += LABELS.match(code[begin:at]).end()
                yield code.count("\n", 0, begin) + 1, code.count("\n", 0, at) + 1
            # A member initialiser belongs to the header of the constructor that goes on behind it.
            if kind in ("function", "scope"):
                header_begin = at + 1
        elif not inside:
            header_begin = at + 1


def folder_of(path):
    """The floor that a file stands on, or None for a file that has none."""
    parts = path.split(os.sep)
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in TOP_FOLDERS else None


def check_includes(path, text):
    folder = folder_of(path)
    if folder is None:
        return
    if folder not in ARROWS:
        yield 1, f"folder {folder} has no floor: add it to ARCHITECTURE.md and to ARROWS in tools/tidy.py"
        return
    allowed = reachable(folder)
    if path.endswith("_test.cc"):
        allowed |= reachable("testing")
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target, slash, _ = match.group(1).partition("/")
        if not slash or target not in ARROWS:
            if folder not in TOP_FOLDERS:
                yield number, f'"{match.group(1)}" is not written from src/: name its folder'
        elif target not in allowed:
            yield number, (f"{folder} may not include from {target}: the arrow points up or sideways. "
                           f"{folder} sees only: {', '.join(sorted(allowed))}")


def is_test(path):
    name = os.path.basename(path)
    return name.endswith(("_test.cc", "_test.py")) or name.startswith("test_")


def check_lengths(path, text):
    lines = text.count("\n") + (not text.endswith("\n"))
    lines_max = TEST_FILE_LINES_MAX if is_test(path) else FILE_LINES_MAX
    if lines > lines_max:
        yield lines_max, f"{lines} lines, at most {lines_max}: split the file by what it is about"
    spans = python_functions(text) if path.endswith(".py") else functions(strip_code(text))
    for begin, end in spans:
        if end - begin + 1 > FUNCTION_LINES_MAX:
            yield begin, (f"a function of {end - begin + 1} lines, at most {FUNCTION_LINES_MAX}: "
                          "give its steps names")


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def check_words(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, sentence in FORBIDDEN:
            match = pattern.search(line)
            if match:
                yield number, f"{match.group()}: {sentence}"
        if RAW_ATOMIC in line and path != RAW_ATOMIC_HOME and path.endswith(CODE_ENDINGS):
            yield number, "a raw atomic builtin: use the shared words of base/shared_word.h"


def check_drop_reasons(root):
    """Breaches in base/drop_reason.h as (path, line, sentence); nothing if there is no such file."""
    path = os.path.join("src", "base", "drop_reason.h")
    try:
        text = read(os.path.join(root, path))
    except FileNotFoundError:
        return
    try:
        manual = read(os.path.join(root, "docs", "stats.md"))
    except FileNotFoundError:
        manual = None
    names = set()
    for match in re.finditer(r'^\s+X\((\w+)\s*,?\s*(?:"([^"]*)")?', text, re.MULTILINE):
        name, sentence = match.groups()
        number = text.count("\n", 0, match.start(1)) + 1
        if name in names:
            yield path, number, f"{name} is listed twice"
        names.add(name)
        if not sentence or len(sentence.split()) < 3:
            yield path, number, f"{name} has no sentence: say what happened to the frame"
        if manual is not None and f"`{name}`" not in manual:
            yield path, number, f"{name} is not explained in docs/stats.md"
    if not names:
        yield path, 1, "no drop reason found: keep the X(name, \"sentence\") form"


def check_option_docs(root):
    """Options that their documents do not know, as (path, line, sentence)."""
    path = os.path.join("src", "control", "option_schema.cc")
    documents = [os.path.join("docs", "sluice.1"), os.path.join("packaging", "completion", "sluice.bash")]
    try:
        text = read(os.path.join(root, path))
        documents = [(name, read(os.path.join(root, name))) for name in documents]
    except FileNotFoundError:
        return
    for match in re.finditer(r'^\s+\{"([a-z][a-z-]*)",', text, re.MULTILINE):
        key = match.group(1)
        number = text.count("\n", 0, match.start(1)) + 1
        for name, words in documents:
            if not re.search(rf"(?<![\w-]){key}(?![\w-])|-{key}(?![\w-])", words):
                yield path, number, f"{key} does not stand in {name}"


def check_packages(root):
    """Packages that README.md does not give a reason for, as (path, line, sentence)."""
    path = os.path.join("tools", "install-deps.sh")
    try:
        text, readme = read(os.path.join(root, path)), read(os.path.join(root, "README.md"))
    except FileNotFoundError:
        return
    for match in re.finditer(r'^(?:build|demo|all)="([^"]*)"', text, re.MULTILINE):
        for package in match.group(1).split():
            if not re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", readme):
                number = text.count("\n", 0, match.start()) + 1
                yield path, number, f"{package} has no row in README.md: say what it is for, and why"


def check_command_help(path, text):
    """A command with a help text of its own: the options that it reads stand there."""
    help_text = re.search(r'kHelp\s*=\s*R"\((.*?)\)"', text, re.DOTALL)
    if help_text is None or folder_of(path) != "apps":
        return
    for match in re.finditer(r'"(?:-\w,)?--([a-z][a-z-]*)"', text):
        option = match.group(1)
        if option != "help" and not re.search(rf"--{option}(?![\w-])", help_text.group(1)):
            number = text.count("\n", 0, match.start()) + 1
            yield number, f"--{option} is read here, but the help does not say so"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(TEXT_ENDINGS) or name in ("Makefile", "CMakeLists.txt", "run"):
                yield os.path.relpath(os.path.join(folder, name), root)


def check_file(root, path):
    text = read(os.path.join(root, path))
    checks = [check_words]
    if path.endswith(CODE_ENDINGS):
        checks += [check_includes, check_lengths, check_command_help]
    elif path.endswith(".py"):
        checks += [check_lengths]
    for check in checks:
        for number, sentence in check(path, text):
            yield path, number, sentence


def check_tree(root):
    """(number of files, [(path, line, sentence)])"""
    paths = list(files_of(root))
    breaches = [breach for path in paths for breach in check_file(root, path)]
    for check in (check_drop_reasons, check_option_docs, check_packages):
        breaches += check(root)
    return len(paths), breaches


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Checks the rules of the house.")
    parser.add_argument("--root", default=here, help="the project's folder")
    count, breaches = check_tree(parser.parse_args().root)
    for path, number, sentence in breaches:
        print(f"{path}:{number}: {sentence}")
    if count == 0:
        print("tidy: no files found: wrong --root?")
        return 1
    print(f"tidy: {count} files, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
