#!/usr/bin/env python3
"""Tests of tools/tidy.py: each rule sees its breach, and leaves alone what only looks like one."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402


def breaches(files):
    """What tidy says of a tree of these files, as 'path:line: sentence' strings."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return [f"{path}:{line}: {text}" for path, line, text in tidy.check_tree(root)[1]]


def lines_of(code):
    return list(tidy.functions(tidy.strip_code(code)))


class Arrows(unittest.TestCase):
    # file, what it includes, is that allowed
    CASES = [
        ("src/virtio/a.cc", "memory/guest_memory.h", True),
        ("src/virtio/a.cc", "base/fd.h", True),
        ("src/virtio/a.cc", "virtio/ring.h", True),
        ("src/virtio/a.cc", "packet/checksum.h", False),
        ("src/packet/a.h", "virtio/ring.h", False),
        ("src/base/a.cc", "memory/frame.h", False),
        ("src/port/a.cc", "engine/worker.h", False),
        ("src/port/a.cc", "packet/checksum.h", True),
        ("src/engine/a.cc", "vhost/session.h", True),
        ("src/control/a.cc", "testing/fake_driver.h", False),
        ("src/virtio/a_test.cc", "testing/fake_driver.h", True),
        ("src/testing/a.cc", "control/options.h", False),
        ("src/base/a.cc", "fd.h", False),
        ("apps/a.cc", "a.h", True),
        ("apps/a.cc", "control/options.h", True),
        ("apps/a.cc", "testing/fake_driver.h", False),
        ("fuzz/a_fuzz.cc", "testing/fake_driver.h", True),
    ]

    def test_an_include_points_down_or_is_refused(self):
        for path, target, allowed in self.CASES:
            with self.subTest(path=path, target=target):
                found = breaches({path: f'#include <vector>\n#include "{target}"\n'})
                self.assertEqual(found == [], allowed, found)
                self.assertTrue(allowed or found[0].startswith(f"{path}:2: "), found)

    def test_a_folder_without_a_floor_is_refused(self):
        self.assertEqual(len(breaches({"src/attic/a.cc": "int a;\n"})), 1)


class Lengths(unittest.TestCase):
    def body(self, head, lines, tail="}"):
        return head + "\n" + "  step();\n" * lines + tail + "\n"

    def test_a_function_of_70_lines_passes_and_of_71_does_not(self):
        self.assertEqual(breaches({"src/base/a.cc": self.body("void f() {", 68)}), [])
        found = breaches({"src/base/a.cc": self.body("void f() {", 69)})
        self.assertEqual(len(found), 1)
        self.assertIn("a function of 71 lines", found[0])

    def test_a_long_type_namespace_or_table_is_no_function(self):
        for head in ("namespace a {", "struct alignas(64) A {", "template <class T>\nclass A : B<T> {",
                     "enum class A {", "const Row rows[] = {", 'extern "C" {'):
            with self.subTest(head=head):
                self.assertEqual(lines_of(self.body(head, 100)), [])

    def test_every_shape_of_function_is_seen(self):
        for head in ("int f(int a) const noexcept {", "auto f() -> std::vector<int> {",
                     "A::A(int b) : b_(b), c_{1} {", "A::A() : c_{1}, d_{2} {", "TEST(A, B) {",
                     "struct iovec f(int a) {", "bool operator()(int a) const {",
                     "template <typename T>\nT f(T a) {", "void f(std::string_view a = \"{\") {"):
            with self.subTest(head=head):
                lines = head.count("\n") + 5
                self.assertEqual(lines_of("namespace x {\n" + self.body(head, 3) + "}\n"),
                                 [(2, 1 + lines)])

    def test_two_functions_are_not_taken_for_one(self):
        code = "class A {\n public:\n  A() : b_{1} {\n  }\n  int b() { return b_; }\n  int b_;\n};\n"
        self.assertEqual(lines_of(code), [(3, 4), (5, 5)])

    def test_braces_in_strings_comments_and_macros_do_not_count(self):
        code = ("#define OPEN {\nvoid f() {\n  // {\n  a(\"{\", '{', R\"({)\"); /* { */\n"
                "  b(1'000);\n}\nvoid g() {\n}\n")
        self.assertEqual(lines_of(code), [(2, 6), (7, 8)])

    def test_a_file_has_at_most_500_lines_and_a_test_800(self):
        line = "int a;\n"
        self.assertEqual(breaches({"src/base/a.cc": line * 500}), [])
        self.assertEqual(len(breaches({"src/base/a.cc": line * 501})), 1)
        self.assertEqual(breaches({"src/base/a_test.cc": line * 800}), [])
        self.assertEqual(len(breaches({"src/base/a_test.cc": line * 801})), 1)

    def test_a_long_python_function_is_seen(self):
        self.assertEqual(len(breaches({"tests/a.py": "def f():\n" + "    f()\n" * 71})), 1)


class Words(unittest.TestCase):
    # Joined here, so that this file passes its own check.
    CASES = [
        ("/" + "work/x", False), ("cd /" + "root", False), ("'/" + "home/me'", False),
        ("FIX" + "ME later", False), ("X" + "XX", False),
        ("/var/lib/x", True), ("tests/" + "work/x", True), ("mkdtemp('a-" + "X" * 6 + "')", True),
        ("$TOP/" + "work", True), ("framework/x", True),
    ]

    def test_forbidden_words_are_refused_and_likenesses_are_not(self):
        for text, allowed in self.CASES:
            with self.subTest(text=text):
                self.assertEqual(breaches({"docs/a.md": f"{text}\n"}) == [], allowed)

    def test_raw_atomics_live_in_one_header(self):
        code = f"int a = {tidy.RAW_ATOMIC}load_n(p, 0);\n"
        self.assertEqual(breaches({"src/base/shared_word.h": code}), [])
        self.assertEqual(len(breaches({"src/base/clock.h": code})), 1)


class DropReasons(unittest.TestCase):
    PATH = "src/base/drop_reason.h"

    def header(self, *rows):
        return "#define R(X) \\\n" + "".join(f"  X({row}) \\\n" for row in rows) + "\n"

    def test_a_reason_with_a_sentence_passes(self):
        text = self.header('runt, "shorter than a header"')
        self.assertEqual(breaches({self.PATH: text, "docs/stats.md": "`runt`\n"}), [])

    def test_a_reason_without_a_sentence_is_refused(self):
        for row in ("runt", 'runt, ""', 'runt, "runt"'):
            with self.subTest(row=row):
                self.assertEqual(len(breaches({self.PATH: self.header(row)})), 1)

    def test_a_reason_listed_twice_or_not_explained_is_refused(self):
        row = 'runt, "shorter than a header"'
        self.assertEqual(len(breaches({self.PATH: self.header(row, row)})), 1)
        found = breaches({self.PATH: self.header(row), "docs/stats.md": "nothing\n"})
        self.assertEqual(len(found), 1)

    def test_a_list_that_cannot_be_read_is_refused(self):
        self.assertEqual(len(breaches({self.PATH: "enum class DropReason { runt };\n"})), 1)


class Options(unittest.TestCase):
    SCHEMA = {"src/control/option_schema.cc": '    {"poll-us", ValueKind::number, "N"},\n'}

    def test_an_option_that_its_documents_do_not_know_is_refused(self):
        for manual, completion, count in ((".It Fl -poll-us Ar N\n", "--poll-us", 0),
                                          (".It Fl -poll\n", "--poll-us", 1),
                                          ("", "poll-used", 2)):
            with self.subTest(manual=manual, completion=completion):
                files = {"docs/sluice.1": manual, "packaging/completion/sluice.bash": completion}
                self.assertEqual(len(breaches({**self.SCHEMA, **files})), count)

    def test_an_option_that_its_own_help_does_not_know_is_refused(self):
        code = 'constexpr std::string_view kHelp =\n    R"(  --rounds N  how many\n)";\n'
        for option, count in (("--rounds", 0), ("-r,--rounds", 0), ("--round", 1), ("--help", 0)):
            with self.subTest(option=option):
                read = f'void f(App& app) {{ app.add_option("{option}", n); }}\n'
                found = breaches({"apps/cmd_a.cc": code + read})
                self.assertEqual(len(found), count, found)
                self.assertTrue(count == 0 or found[0].startswith("apps/cmd_a.cc:4: "), found)


class Packages(unittest.TestCase):
    def test_a_package_without_a_row_is_refused(self):
        script = 'build="g++ libfmt-dev\n       ninja-build"\nall="dpdk"\n'
        for readme, count in (("g++ libfmt-dev, ninja-build | dpdk |", 0), ("g++ libfmt-dev ninja dpdk", 1),
                              ("g++, libfmt-dev, ninja-build, dpdk-dev", 1), ("", 4)):
            with self.subTest(readme=readme):
                found = breaches({"tools/install-deps.sh": script, "README.md": readme})
                self.assertEqual(len(found), count, found)


if __name__ == "__main__":
    unittest.main()
